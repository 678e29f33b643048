//! The seat of a rank: its position in its group, and the seats around it.

use gradwire_protocol::units::Rank;

/// A rank's seat in its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupSeat<'a> {
    /// The group, in the order that all its ranks agree on.
    pub(crate) ranks: &'a [Rank],
    /// Position of this rank in it.
    pub(crate) me: usize,
    /// How many ranks' values each seat brings; one each if this is empty.
    pub(crate) brings: &'a [u16],
}

impl<'a> GroupSeat<'a> {
    /// The seat of number `me` among ranks that bring their own values.
    pub(crate) fn new(ranks: &'a [Rank], me: usize) -> Self {
        let brings = &[];
        Self { ranks, me, brings }
    }

    /// How many ranks' values a seat brings.
    pub(crate) fn brought_by(&self, seat: usize) -> u16 {
        self.brings.get(seat).copied().unwrap_or(1)
    }

    /// How many seats there are.
    pub(crate) fn world(&self) -> usize {
        self.ranks.len()
    }

    /// How many ranks' values all seats together bring.
    pub(crate) fn contributors(&self) -> u16 {
        if self.brings.is_empty() {
            u16::try_from(self.ranks.len()).expect("ranks are distinct 16-bit numbers")
        } else {
            self.brings.iter().sum()
        }
    }

    /// The seat `distance` further on, around the group.
    pub(crate) fn after(&self, distance: usize) -> usize {
        (self.me + distance) % self.world()
    }

    /// The seat `distance` before, around the group.
    pub(crate) fn before(&self, distance: usize) -> usize {
        (self.me + self.world() - distance % self.world()) % self.world()
    }

    /// The seats of all others, beginning with the one after this seat: if all ranks began with the
    /// same seat, they would all send to it at once.
    pub(crate) fn others(self) -> impl Iterator<Item = usize> {
        (1..self.ranks.len()).map(move |distance| (self.me + distance) % self.ranks.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_begins_with_another_seat() {
        let ranks = [Rank(4), Rank(5), Rank(6)];
        let firsts = (0..3).map(|me| GroupSeat::new(&ranks, me).others().next());
        assert_eq!(firsts.collect::<Vec<_>>(), [Some(1), Some(2), Some(0)]);
    }
}
