//! A code with all its symbols under numbers, and the coefficients between them.
//!
//! Servers are not equal in a single stripe: some have one data symbol more. So a code has several
//! stripes, in which the servers change roles, until each has the same number of data symbols. The
//! symbols of n servers, s of which each stores, have these numbers:
//!
//! - `server * s + i` is what a server stores; its data come first.
//! - `n * s + (rebuilder * n + rebuilt) * r + i`: the r symbols that a rebuilder sends to a server
//!   that is rebuilt.

use gradwire_protocol::job::RedundancyTerms;

use crate::redundancy::families::{FamilyRows, rows};
use crate::redundancy::field;
use crate::redundancy::span::RowSpan;

/// Why there is no code, or no coefficients.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CodeError {
    /// The field has too few elements.
    #[error("{0} does not exist over bytes: take fewer servers or rebuilders, or another family")]
    NoCode(RedundancyTerms),
    /// A number that no symbol has.
    #[error("symbol {given}: {terms} has symbols 0 to {last}")]
    NoSymbol {
        /// The number.
        given: usize,
        /// The code.
        terms: RedundancyTerms,
        /// The largest number.
        last: usize,
    },
    /// The given symbols do not determine the target.
    #[error("symbol {target} does not follow from the {given} symbols given: {terms} needs more")]
    Undetermined {
        /// The target's number.
        target: usize,
        /// How many symbols were given.
        given: usize,
        /// The code.
        terms: RedundancyTerms,
    },
}

/// One symbol of one stripe.
#[derive(Clone, Copy, Debug)]
struct Place {
    stripe: usize,
    /// In the rows of a stripe.
    row: usize,
}

/// A code for the state of servers.
#[derive(Debug)]
pub struct Code {
    terms: RedundancyTerms,
    stripes: usize,
    /// The rows of a stripe in terms of its data symbols: stored ones by role, then sent ones by
    /// role of the rebuilder and role of the server that is rebuilt.
    rows: Vec<Vec<u8>>,
    /// Data symbols by role.
    data: Vec<usize>,
    /// Symbols that a server stores, and that a rebuilder sends, in one stripe.
    stored: usize,
    sent: usize,
}

impl Code {
    /// Constructs a code.
    ///
    /// # Errors
    /// [`CodeError::NoCode`] when bytes are too few elements for it.
    pub fn new(terms: RedundancyTerms) -> Result<Self, CodeError> {
        let plain = rows(terms).ok_or(CodeError::NoCode(terms))?;
        systematic(terms, plain).ok_or(CodeError::NoCode(terms))
    }

    /// The numbers that a job states.
    pub fn terms(&self) -> RedundancyTerms {
        self.terms
    }

    /// Symbols of its data that each server stores.
    pub fn data_symbols(&self) -> usize {
        self.stripes * self.data.iter().sum::<usize>() / self.data.len()
    }

    /// All symbols that each server stores.
    pub fn stored_symbols(&self) -> usize {
        self.stripes * self.stored
    }

    /// Symbols that each rebuilder sends to a server that is rebuilt.
    pub fn sent_symbols(&self) -> usize {
        self.stripes * self.sent
    }

    /// The numbers of the symbols that a server stores, its data first.
    pub fn stored(&self, server: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let count = self.stored_symbols();
        server * count..(server + 1) * count
    }

    /// The numbers of a server's data.
    pub fn data(&self, server: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        self.stored(server).take(self.data_symbols())
    }

    /// The numbers of the symbols that `rebuilder` sends for the sake of `rebuilt`.
    pub fn sent(
        &self,
        rebuilder: usize,
        rebuilt: usize,
    ) -> impl Iterator<Item = usize> + Clone + use<> {
        let (servers, count) = (self.terms.servers(), self.sent_symbols());
        let first = servers * self.stored_symbols() + (rebuilder * servers + rebuilt) * count;
        first..first + count
    }

    /// The coefficients by which `targets` are sums of `sources`: one row per target, with one
    /// entry per source. Sources that are not needed have zeros.
    ///
    /// # Errors
    /// [`CodeError`] when a number is no symbol's, or the sources do not determine a target.
    pub fn express(&self, targets: &[usize], sources: &[usize]) -> Result<Vec<Vec<u8>>, CodeError> {
        let places = |symbols: &[usize]| -> Result<Vec<Place>, CodeError> {
            symbols.iter().map(|symbol| self.place(*symbol)).collect()
        };
        let (sources_at, targets_at) = (places(sources)?, places(targets)?);
        let of_stripe = |stripe: usize| {
            let here = |at: &usize| sources_at[*at].stripe == stripe;
            let here: Vec<usize> = (0..sources.len()).filter(here).collect();
            let span = RowSpan::of(here.iter().map(|at| self.row(sources_at[*at])));
            (here, span)
        };
        let spans: Vec<(Vec<usize>, RowSpan)> = (0..self.stripes).map(of_stripe).collect();
        let mut all = Vec::with_capacity(targets.len());
        for (target, place) in targets.iter().zip(targets_at) {
            let (here, span) = &spans[place.stripe];
            let factors = span.express(self.row(place));
            let factors = factors.ok_or(CodeError::Undetermined {
                target: *target,
                given: sources.len(),
                terms: self.terms,
            })?;
            let mut row = vec![0; sources.len()];
            for (at, factor) in here.iter().zip(factors) {
                row[*at] = factor;
            }
            all.push(row);
        }
        Ok(all)
    }

    fn row(&self, place: Place) -> &[u8] {
        &self.rows[place.row]
    }

    /// The role of a server in a stripe.
    fn role(&self, server: usize, stripe: usize) -> usize {
        let step = self
            .data
            .iter()
            .filter(|data| **data > self.data[self.data.len() - 1]);
        (server + stripe * step.count()) % self.terms.servers()
    }

    fn place(&self, symbol: usize) -> Result<Place, CodeError> {
        let servers = self.terms.servers();
        let stored = servers * self.stored_symbols();
        let symbols = stored + servers * servers * self.sent_symbols();
        if symbol >= symbols {
            return Err(CodeError::NoSymbol {
                given: symbol,
                terms: self.terms,
                last: symbols - 1,
            });
        }
        if symbol < stored {
            let (server, index) = (
                symbol / self.stored_symbols(),
                symbol % self.stored_symbols(),
            );
            return Ok(self.place_of_stored(server, index));
        }
        let (pair, index) = (
            (symbol - stored) / self.sent_symbols(),
            (symbol - stored) % self.sent_symbols(),
        );
        let (stripe, index) = (index / self.sent, index % self.sent);
        let [rebuilder, rebuilt] = [pair / servers, pair % servers].map(|s| self.role(s, stripe));
        let row = servers * self.stored + (rebuilder * servers + rebuilt) * self.sent + index;
        Ok(Place { stripe, row })
    }

    /// Data of all stripes come first, then the other symbols of all stripes.
    fn place_of_stored(&self, server: usize, index: usize) -> Place {
        let mut left = index;
        for is_data in [true, false] {
            for stripe in 0..self.stripes {
                let role = self.role(server, stripe);
                let data = self.data[role];
                let (first, count) = match is_data {
                    true => (0, data),
                    false => (data, self.stored - data),
                };
                if left < count {
                    let row = role * self.stored + first + left;
                    return Place { stripe, row };
                }
                left -= count;
            }
        }
        unreachable!("symbol {index} of a server is one that it stores")
    }
}

/// Sums symbols by the coefficients of [`Code::express`]: one output per row of `factors`.
///
/// # Panics
/// When a row has not one entry per input, or lengths differ.
pub fn combine(factors: &[&[u8]], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
    field::combine(factors, inputs, outputs);
}

/// Chooses each server's data symbols and states all rows in terms of them.
fn systematic(terms: RedundancyTerms, plain: FamilyRows) -> Option<Code> {
    let servers = terms.servers();
    let (chosen, span) = choose(&plain, servers);
    if span.rank() < plain.message {
        return None;
    }
    let counts: Vec<usize> = chosen[..servers].iter().map(Vec::len).collect();
    let (least, most) = (counts.iter().min()?, counts.iter().max()?);
    if most - least > 1 {
        return None;
    }
    let mut order: Vec<usize> = (0..servers).collect();
    order.sort_by_key(|server| std::cmp::Reverse(counts[*server]));
    let longer = counts.iter().filter(|count| *count > least).count() % servers;
    let places = placed(&chosen, &order);
    let restated = |row: &Vec<u8>| -> Vec<u8> {
        let factors = span.express(row).expect("all of the message is spanned");
        places.iter().map(|place| factors[*place]).collect()
    };
    let stored = order.iter().flat_map(|&server| {
        let mut symbols: Vec<usize> = (0..plain.stored[server].len()).collect();
        let of_data: Vec<usize> = chosen[server].iter().map(|(symbol, _)| *symbol).collect();
        symbols.sort_by_key(|symbol| !of_data.contains(symbol));
        let rows = &plain.stored[server];
        symbols.into_iter().map(move |symbol| &rows[symbol])
    });
    let pairs = order
        .iter()
        .flat_map(|&h| order.iter().map(move |&f| (h, f)));
    let sent = pairs.flat_map(|(rebuilder, rebuilt)| &plain.sent[rebuilder][rebuilt]);
    Some(Code {
        terms,
        stripes: match longer {
            0 => 1,
            longer => servers / common_divisor(servers, longer),
        },
        rows: stored.chain(sent).map(restated).collect(),
        data: order.iter().map(|server| counts[*server]).collect(),
        stored: plain.stored[0].len(),
        sent: plain.sent[0][1].len(),
    })
}

/// By server: the symbols that are its data, and their rows in the span. Servers choose in turns;
/// those that do not exist, whose symbols are zeros, come first and choose all of theirs.
type Choice = Vec<Vec<(usize, usize)>>;

fn choose(plain: &FamilyRows, servers: usize) -> (Choice, RowSpan) {
    let all = servers + plain.shortened;
    let (mut chosen, mut span) = (vec![Vec::new(); all], RowSpan::default());
    let mut tried = vec![0; all];
    let mut rows = 0;
    while let Some(server) = (0..all)
        .filter(|server| tried[*server] < plain.stored[*server].len())
        .min_by_key(|&server| match server >= servers {
            true => (0, server),
            false => (1 + chosen[server].len(), server),
        })
        .filter(|_| span.rank() < plain.message)
    {
        let symbol = tried[server];
        tried[server] += 1;
        if span.add(&plain.stored[server][symbol]) {
            chosen[server].push((symbol, rows));
        }
        rows += 1;
    }
    (chosen, span)
}

/// The rows of the span that are data, in the order of roles.
fn placed(chosen: &Choice, order: &[usize]) -> Vec<usize> {
    let data = order.iter().flat_map(|server| &chosen[*server]);
    data.map(|(_, row)| *row).collect()
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests;
