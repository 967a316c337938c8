//! Matrices that are computed with: rows next to each other, all numbers of one width.

use fv_spec::program::Element;

use super::number::{Number, index};
use super::storage;

/// A matrix where it lies: rows of equal length at a constant distance.
#[derive(Debug, Clone, Copy)]
pub struct Operand<'a> {
    /// From its first element on.
    pub bytes: &'a [u8],
    /// How its numbers are stored.
    pub element: Element,
    /// Rows.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// Elements from the start of a row to that of the next.
    pub pitch: usize,
}

impl<'a> Operand<'a> {
    /// The bytes of its rows.
    pub(super) fn row_bytes(&self) -> impl Iterator<Item = &'a [u8]> {
        let (bytes, size) = (self.bytes, index(self.element.bytes()));
        let (distance, length) = (self.pitch * size, self.columns * size);
        (0..self.rows).map(move |row| &bytes[row * distance..row * distance + length])
    }
}

/// Rows of numbers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Matrix<T> {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) values: Vec<T>,
}

impl<T: Number> Matrix<T> {
    pub(super) fn zeros(rows: usize, columns: usize) -> Self {
        Self { rows, columns, values: vec![T::zero(); rows * columns] }
    }

    pub(super) fn load(operand: &Operand<'_>) -> Self {
        let mut values = Vec::with_capacity(operand.rows * operand.columns);
        for row in operand.row_bytes() {
            storage::decode(operand.element, row, &mut values);
        }
        Self { rows: operand.rows, columns: operand.columns, values }
    }

    pub(super) fn row(&self, row: usize) -> &[T] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    pub(super) fn row_mut(&mut self, row: usize) -> &mut [T] {
        &mut self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// Each row made of the row before.
    pub(super) fn map_rows(mut self, change: impl Fn(usize, &mut [T])) -> Self {
        for row in 0..self.rows {
            change(row, self.row_mut(row));
        }
        self
    }

    /// Each number made of the number before.
    pub(super) fn map(mut self, change: impl Fn(T) -> T) -> Self {
        for value in &mut self.values {
            *value = change(*value);
        }
        self
    }

    /// Rows of another matrix, one for each row of the result; zeros where there is none.
    pub(super) fn gather(&self, rows: impl ExactSizeIterator<Item = Option<usize>>) -> Self {
        let mut result = Self::zeros(rows.len(), self.columns);
        for (row, from) in rows.enumerate() {
            if let Some(from) = from {
                result.row_mut(row).copy_from_slice(self.row(from));
            }
        }
        result
    }

    pub(super) fn has_nan(&self) -> bool {
        self.values.iter().any(|value| value.is_nan())
    }

    #[cfg(test)]
    pub(super) fn of(columns: usize, values: &[f64]) -> Self {
        Self { rows: values.len() / columns, columns, values: values.iter().map(|x| T::of(*x)).collect() }
    }
}
