//! The operands of an operation, checked as they are read.

use super::matrix::{Matrix, Operand};
use super::number::Number;
use super::storage;
use super::{Mismatch, Written};

/// The operands of an operation.
pub(super) struct Call<'a> {
    pub(super) reads: &'a [Operand<'a>],
    pub(super) writes: &'a [Operand<'a>],
}

impl Call<'_> {
    /// So many are read, so many written.
    pub(super) fn count(&self, reads: usize, writes: usize) -> Result<(), Mismatch> {
        if (self.reads.len(), self.writes.len()) == (reads, writes) {
            return Ok(());
        }
        let text = |reads, writes| format!("{reads} read and {writes} written");
        Err(Mismatch::Count { found: text(self.reads.len(), self.writes.len()), expected: text(reads, writes) })
    }

    /// Of any extents.
    pub(super) fn read<T: Number>(&self, at: usize) -> Matrix<T> {
        Matrix::load(&self.reads[at])
    }

    /// Of these extents.
    pub(super) fn read_as<T: Number>(&self, at: usize, rows: usize, columns: usize) -> Result<Matrix<T>, Mismatch> {
        self.check(at, Some(rows), Some(columns))?;
        Ok(self.read(at))
    }

    /// Of any number of rows.
    pub(super) fn read_wide<T: Number>(&self, at: usize, columns: usize) -> Result<Matrix<T>, Mismatch> {
        self.check(at, None, Some(columns))?;
        Ok(self.read(at))
    }

    /// Of any number of columns.
    pub(super) fn read_long<T: Number>(&self, at: usize, rows: usize) -> Result<Matrix<T>, Mismatch> {
        self.check(at, Some(rows), None)?;
        Ok(self.read(at))
    }

    pub(super) fn check(&self, at: usize, rows: Option<usize>, columns: Option<usize>) -> Result<(), Mismatch> {
        check(&format!("read {at}"), &self.reads[at], rows, columns)
    }

    /// The only thing that is written.
    pub(super) fn result<T: Number>(&self, result: &Matrix<T>) -> Result<Vec<Written>, Mismatch> {
        Ok(vec![self.target(0, result)?])
    }

    /// All that is written.
    pub(super) fn results<T: Number>(&self, results: &[Matrix<T>]) -> Result<Vec<Written>, Mismatch> {
        results.iter().enumerate().map(|(at, result)| self.target(at, result)).collect()
    }

    fn target<T: Number>(&self, at: usize, result: &Matrix<T>) -> Result<Written, Mismatch> {
        let target = &self.writes[at];
        check(&format!("write {at}"), target, Some(result.rows), Some(result.columns))?;
        let mut bytes = Vec::new();
        storage::encode(target.element, &result.values, &mut bytes);
        Ok(Written { bytes, has_nan: result.has_nan() })
    }
}

fn check(operand: &str, found: &Operand<'_>, rows: Option<usize>, columns: Option<usize>) -> Result<(), Mismatch> {
    if rows.is_none_or(|rows| rows == found.rows) && columns.is_none_or(|columns| columns == found.columns) {
        return Ok(());
    }
    let word = |extent: Option<usize>| extent.map_or("any".to_owned(), |extent| extent.to_string());
    Err(Mismatch::Extents {
        operand: operand.to_owned(),
        found: format!("{} x {}", found.rows, found.columns),
        expected: format!("{} x {}", word(rows), word(columns)),
    })
}
