//! Rows over GF(256) as sums of other rows: the coefficients by which symbols follow from symbols.

use crate::redundancy::field::{add_product, inverse};

/// The span of some rows, in echelon form.
#[derive(Debug, Default)]
pub(super) struct RowSpan {
    entries: Vec<Entry>,
    rows: usize,
}

/// One independent row, reduced until its first entry that is not zero is 1.
#[derive(Debug)]
struct Entry {
    pivot: usize,
    reduced: Vec<u8>,
    /// The reduced row as a sum of the given ones.
    factors: Vec<u8>,
}

impl RowSpan {
    /// The span of rows of equal length.
    pub(super) fn of<'a>(rows: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut span = Self::default();
        for row in rows {
            span.add(row);
        }
        span
    }

    /// Adds a row. Returns whether it is independent of the earlier ones.
    pub(super) fn add(&mut self, row: &[u8]) -> bool {
        let number = self.rows;
        self.rows += 1;
        let (mut reduced, mut factors) = self.remainder(row);
        let Some(pivot) = reduced.iter().position(|entry| *entry != 0) else {
            return false;
        };
        factors.resize(number, 0);
        factors.push(1);
        let scale = inverse(reduced[pivot]);
        for values in [&mut reduced, &mut factors] {
            let unscaled = values.clone();
            values.fill(0);
            add_product(values, scale, &unscaled);
        }
        self.entries.push(Entry {
            pivot,
            reduced,
            factors,
        });
        true
    }

    /// The coefficients, one per row of the span, whose sum is `target`, if there are any. Rows
    /// that depend on earlier ones have zero.
    pub(super) fn express(&self, target: &[u8]) -> Option<Vec<u8>> {
        let (remainder, mut factors) = self.remainder(target);
        factors.resize(self.rows, 0);
        remainder.iter().all(|entry| *entry == 0).then_some(factors)
    }

    /// How many rows are independent.
    pub(super) fn rank(&self) -> usize {
        self.entries.len()
    }

    /// What no row of the span can remove from `row`, and the rows that removed the rest.
    fn remainder(&self, row: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut reduced, mut factors) = (row.to_vec(), vec![0; self.rows]);
        for entry in &self.entries {
            let factor = reduced[entry.pivot];
            add_product(&mut reduced, factor, &entry.reduced);
            add_product(&mut factors[..entry.factors.len()], factor, &entry.factors);
        }
        (reduced, factors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_rebuild_the_target() {
        let rows: [&[u8]; 4] = [&[1, 2, 3], &[0, 5, 7], &[1, 7, 4], &[9, 9, 1]];
        let span = RowSpan::of(rows);
        assert_eq!(span.rank(), 3, "the third row is the sum of the first two");
        let target = [4, 200, 17];
        let factors = span.express(&target).expect("three rows span everything");
        let mut sum = [0; 3];
        for (factor, row) in factors.iter().zip(rows) {
            add_product(&mut sum, *factor, row);
        }
        assert_eq!(sum, target);
        assert_eq!(factors[2], 0);
    }

    #[test]
    fn a_row_outside_the_span_has_no_coefficients() {
        let span = RowSpan::of([[1, 2, 3].as_slice(), &[2, 4, 6]]);
        assert_eq!((span.rank(), span.express(&[1, 2, 4])), (1, None));
    }
}
