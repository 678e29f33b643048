//! One rank's data in a measured collective: its input, and the result that is right.

use std::ops::Range;

use gradwire_collectives::operation::Collective;
use gradwire_protocol::units::Rank;

use super::ELEMENT_BYTES;
use super::kind::PerfCollective;
use super::pattern::{self, Expected};

/// The rank that collectives with a root have as root.
const ROOT: Rank = Rank(0);

/// One collective of one size, from the side of one rank.
#[derive(Clone, Debug)]
pub struct Exercise {
    /// Which collective.
    pub kind: PerfCollective,
    /// The operation of one step; `None` for a ping-pong, which has two.
    pub collective: Option<Collective>,
    /// The buffer before.
    pub buffer: Vec<u8>,
    /// The input, where there is one.
    pub input: Option<Vec<u8>>,
    /// The right content of the buffer afterwards; `None` where any content is right.
    pub expected: Option<Expected>,
}

impl Exercise {
    /// The exercise of one rank of a job. `bytes` is the size of the whole tensor, a multiple of
    /// the collective's granule.
    pub fn new(kind: PerfCollective, (rank, world): (u16, u16), bytes: u64) -> Self {
        let elements = bytes / ELEMENT_BYTES;
        let block = elements / u64::from(world);
        let own = |elements: Range<u64>| pattern::contribution(rank, elements);
        let mine = u64::from(rank) * block..(u64::from(rank) + 1) * block;
        let zeros = |elements: u64| vec![0; (elements * ELEMENT_BYTES) as usize];
        let of_all = |elements: &Range<u64>| {
            let block = |rank| pattern::contribution(rank, elements.clone());
            expect(0, (0..world).flat_map(block).collect())
        };
        let whole = || expect(0, pattern::sum(world, 0..elements));
        let (collective, buffer, input, expected) = match kind {
            PerfCollective::AllReduce => (Collective::AllReduce, own(0..elements), None, whole()),
            PerfCollective::ReduceScatter => {
                let block_sum = expect(mine.start, pattern::sum(world, mine));
                let input = Some(own(0..elements));
                (Collective::ReduceScatter, zeros(block), input, block_sum)
            }
            PerfCollective::AllGather => {
                let input = Some(own(0..block));
                let all = of_all(&(0..block));
                (Collective::AllGather, zeros(elements), input, all)
            }
            PerfCollective::Broadcast => {
                let roots = pattern::contribution(ROOT.0, 0..elements);
                let before = match Rank(rank) == ROOT {
                    true => roots.clone(),
                    false => zeros(elements),
                };
                let collective = Collective::Broadcast { root: ROOT };
                (collective, before, None, expect(0, roots))
            }
            PerfCollective::Reduce => {
                let sum = (Rank(rank) == ROOT).then(whole).flatten();
                let collective = Collective::Reduce { root: ROOT };
                (collective, own(0..elements), None, sum)
            }
            PerfCollective::AllToAll => {
                let input = Some(own(0..elements));
                let all = of_all(&mine);
                (
                    Collective::AllToAll,
                    zeros(block * u64::from(world)),
                    input,
                    all,
                )
            }
            PerfCollective::Barrier => (Collective::Barrier, Vec::new(), None, None),
            PerfCollective::SendRecv => return Self::ping_pong(rank, elements),
        };
        Self {
            kind,
            collective: Some(collective),
            buffer,
            input,
            expected,
        }
    }

    /// Ranks 0 and 1 send their buffers to each other and check the one that they receive.
    fn ping_pong(rank: u16, elements: u64) -> Self {
        let others = pattern::contribution(rank ^ 1, 0..elements);
        let takes_part = rank < 2;
        Self {
            kind: PerfCollective::SendRecv,
            collective: None,
            buffer: vec![0; others.len()],
            input: takes_part.then(|| pattern::contribution(rank, 0..elements)),
            expected: takes_part.then(|| expect(0, others)).flatten(),
        }
    }
}

fn expect(first: u64, exact: Vec<u8>) -> Option<Expected> {
    Some(Expected { exact, first })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: u16 = 3;

    fn exercises(kind: PerfCollective) -> Vec<Exercise> {
        let exercise = |rank| Exercise::new(kind, (rank, WORLD), 4 * kind.granule(WORLD));
        (0..WORLD).map(exercise).collect()
    }

    fn exact(exercise: &Exercise) -> &[u8] {
        &exercise
            .expected
            .as_ref()
            .expect("this rank is checked")
            .exact
    }

    #[test]
    fn reduce_scatter_blocks_make_up_the_sum() {
        let blocks: Vec<u8> = exercises(PerfCollective::ReduceScatter)
            .iter()
            .flat_map(|one| exact(one).to_vec())
            .collect();
        assert_eq!(blocks, pattern::sum(WORLD, 0..12));
    }

    #[test]
    fn an_all_to_all_is_a_transposition() {
        let exercises = exercises(PerfCollective::AllToAll);
        for (to, receiver) in exercises.iter().enumerate() {
            let received = exact(receiver).chunks(16);
            for (from, block) in exercises.iter().zip(received) {
                let input = from.input.as_ref().expect("an all-to-all has an input");
                assert_eq!(&input[to * 16..][..16], block);
            }
        }
    }

    #[test]
    fn no_rank_has_its_result_before_it_begins() {
        for kind in [
            PerfCollective::AllReduce,
            PerfCollective::AllGather,
            PerfCollective::AllToAll,
        ] {
            for one in exercises(kind) {
                assert_ne!(one.buffer, exact(&one), "{kind}");
            }
        }
    }

    #[test]
    fn only_the_root_of_a_reduce_is_checked() {
        let checked = exercises(PerfCollective::Reduce)
            .iter()
            .map(|one| one.expected.is_some())
            .collect::<Vec<_>>();
        assert_eq!(checked, [true, false, false]);
    }
}
