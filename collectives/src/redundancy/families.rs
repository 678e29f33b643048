//! The rows of each family of codes: every symbol as a sum of message symbols.
//!
//! - MBR and MSR are product-matrix codes (Rashmi, Shah, Kumar, arXiv 1005.4178, sections IV and
//!   V): a server's vector times a symmetric matrix of message symbols. MSR with more than 2k - 2
//!   rebuilders is shortened from a longer code, whose further servers hold zeros (theorem 6).
//! - A server stores the products of its vector and those of the servers that follow it, in place
//!   of the symbols of the paper, which are invertible sums of them. So with MBR and d = n - 1 the
//!   symbol that a rebuilder sends is one that it stores, and each symbol lies on two servers.

use gradwire_protocol::job::{RedundancyFamily, RedundancyTerms};

use crate::redundancy::field::{power, product};

/// A code over servers, of which the last [`FamilyRows::shortened`] hold zeros.
#[derive(Debug)]
pub(super) struct FamilyRows {
    /// By server: the symbols that it stores.
    pub(super) stored: Vec<Vec<Vec<u8>>>,
    /// By rebuilder, then by the server that is rebuilt: the symbols that the rebuilder sends.
    pub(super) sent: Vec<Vec<Vec<Vec<u8>>>>,
    /// Message symbols.
    pub(super) message: usize,
    /// Servers that do not exist.
    pub(super) shortened: usize,
}

/// The rows of a code; `None` if GF(256) has too few elements for it.
pub(super) fn rows(terms: RedundancyTerms) -> Option<FamilyRows> {
    match terms.family {
        RedundancyFamily::Rs => Some(reed_solomon(terms)),
        RedundancyFamily::Mbr => Some(least_bandwidth(terms)),
        RedundancyFamily::Msr => least_storage(terms),
    }
}

/// The first powers of an element.
fn powers(element: u8, count: usize) -> Vec<u8> {
    (0..count)
        .map(|exponent| power(element, exponent))
        .collect()
}

fn reed_solomon(terms: RedundancyTerms) -> FamilyRows {
    let (servers, needed) = (terms.servers(), terms.needed());
    let rows: Vec<Vec<u8>> = (0..servers).map(|s| powers(s as u8, needed)).collect();
    FamilyRows {
        sent: rows
            .iter()
            .map(|row| vec![vec![row.clone()]; servers])
            .collect(),
        stored: rows.into_iter().map(|row| vec![row]).collect(),
        message: needed,
        shortened: 0,
    }
}

/// Pairs of positions in a symmetric matrix whose entries are message symbols.
struct Symmetric {
    /// The message symbol at (row, column), if that is not a zero.
    places: Vec<Vec<Option<usize>>>,
}

impl Symmetric {
    /// A matrix of `size` with zeros where neither row nor column is below `filled`. Symbols are
    /// numbered from `first` on.
    fn new(size: usize, filled: usize, first: usize) -> Self {
        let symbol = |row: usize, column: usize| {
            let (above, side) = (row.min(column), row.max(column));
            (above < filled).then(|| first + above * (2 * size + 1 - above) / 2 + side - above)
        };
        let row = |row: usize| (0..size).map(|column| symbol(row, column)).collect();
        Self {
            places: (0..size).map(row).collect(),
        }
    }

    /// Adds `left` times the matrix times `right`, times `factor`, to a row.
    fn add_form(&self, row: &mut [u8], factor: u8, (left, right): (&[u8], &[u8])) {
        for (places, left) in self.places.iter().zip(left) {
            for (place, right) in places.iter().zip(right) {
                if let Some(symbol) = *place {
                    row[symbol] ^= product(factor, product(*left, *right));
                }
            }
        }
    }
}

fn least_bandwidth(terms: RedundancyTerms) -> FamilyRows {
    let (servers, needed, rebuilders) = (terms.servers(), terms.needed(), terms.rebuilders());
    let matrix = Symmetric::new(rebuilders, needed, 0);
    let message = needed * rebuilders - needed * (needed - 1) / 2;
    let vectors: Vec<Vec<u8>> = (0..servers).map(|s| powers(s as u8, rebuilders)).collect();
    let shared = |one: usize, other: usize| {
        let mut row = vec![0; message];
        matrix.add_form(&mut row, 1, (&vectors[one], &vectors[other]));
        row
    };
    let stored = |one: usize| (1..=rebuilders).map(move |step| (one + step) % servers);
    let each = |one: usize| (0..servers).map(move |other| (one, other));
    FamilyRows {
        stored: (0..servers)
            .map(|one| stored(one).map(|other| shared(one, other)).collect())
            .collect(),
        sent: (0..servers)
            .map(|one| each(one).map(|(a, b)| vec![shared(a, b)]).collect())
            .collect(),
        message,
        shortened: 0,
    }
}

fn least_storage(terms: RedundancyTerms) -> Option<FamilyRows> {
    let shortened = terms.rebuilders() + 2 - 2 * terms.needed();
    let servers = terms.servers() + shortened;
    let width = terms.needed() + shortened - 1; // symbols that a server stores
    let (vectors, ratios) = distinct_powers(servers, width)?;
    let half = width * (width + 1) / 2;
    let matrices = [0, half].map(|first| Symmetric::new(width, width, first));
    let with = |one: usize, right: &[u8]| {
        let mut row = vec![0; 2 * half];
        for (matrix, factor) in matrices.iter().zip([1, ratios[one]]) {
            matrix.add_form(&mut row, factor, (&vectors[one], right));
        }
        row
    };
    let next = |one: usize| (1..=width).map(move |step| (one + step) % servers);
    Some(FamilyRows {
        stored: (0..servers)
            .map(|one| next(one).map(|other| with(one, &vectors[other])).collect())
            .collect(),
        sent: (0..servers)
            .map(|one| vectors.iter().map(|other| vec![with(one, other)]).collect())
            .collect(),
        message: 2 * half,
        shortened,
    })
}

/// Vectors of powers for `servers` elements whose `width`-th powers differ, and those powers.
fn distinct_powers(servers: usize, width: usize) -> Option<(Vec<Vec<u8>>, Vec<u8>)> {
    let (mut vectors, mut ratios) = (Vec::new(), Vec::new());
    for element in 0..=255 {
        let ratio = power(element, width);
        if vectors.len() < servers && !ratios.contains(&ratio) {
            ratios.push(ratio);
            vectors.push(powers(element, width));
        }
    }
    (vectors.len() == servers).then_some((vectors, ratios))
}
