//! Tables that leave their memory to the next one of their kind.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::thread::LocalKey;

/// A list of some thousand entries that is made for every program or run: the system takes longer to provide fresh memory than it
/// takes to fill it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table<T: Entry>(Vec<T>);

/// What tables are made of.
pub(super) trait Entry: Sized + 'static {
    /// The memory of tables that are gone. Nothing is in it.
    fn spare() -> &'static LocalKey<Cell<Vec<Self>>>;
}

/// Says where the spare memory of a kind of table is.
macro_rules! spare {
    ($($entry:ty;)*) => {
        $(impl $crate::program::table::Entry for $entry {
            fn spare() -> &'static ::std::thread::LocalKey<::std::cell::Cell<Vec<Self>>> {
                thread_local! { static SPARE: ::std::cell::Cell<Vec<$entry>> = const { ::std::cell::Cell::new(Vec::new()) }; }
                &SPARE
            }
        })*
    };
}
pub(super) use spare;

/// Larger tables are given back.
const LARGEST: usize = 1 << 16;

impl<T: Entry> Table<T> {
    /// An empty table without memory.
    pub(super) const fn empty() -> Self {
        Self(Vec::new())
    }

    /// An empty table with room for so many entries.
    pub(super) fn with_capacity(entries: usize) -> Self {
        let mut table = T::spare().try_with(Cell::take).unwrap_or_default();
        table.reserve(entries);
        Self(table)
    }
}

impl<T: Entry> Default for Table<T> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T: Entry> Deref for Table<T> {
    type Target = Vec<T>;
    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Entry> DerefMut for Table<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T: Entry> Drop for Table<T> {
    fn drop(&mut self) {
        let capacity = self.0.capacity();
        if capacity == 0 || capacity > LARGEST {
            return;
        }
        self.0.clear();
        let keep = |spare: &Cell<Vec<T>>| {
            let other = spare.take();
            spare.set(if other.capacity() < capacity { std::mem::take(&mut self.0) } else { other });
        };
        // A thread that ends has no use for it.
        let _ = T::spare().try_with(keep);
    }
}
