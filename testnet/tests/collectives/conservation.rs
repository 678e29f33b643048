//! Each value of a contribution is delivered, kept as a residual or booked as a loss: over any
//! losses, and across operations that fail.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::DType;
use gradwire_collectives::operation::{Collective, Completion, Group, Operation};
use gradwire_protocol::job::{HoleFilling, Job};
use gradwire_protocol::units::{ByteCount, Rank, Span};

use crate::is_slow;
use crate::world::{SEGMENT, World, all_reduce, floats, rough, small_job, tensor, tolerating};

/// A tensor's key.
const KEY: u64 = 5;

/// Numbers of a case: splitmix64 (Steele, Lea and Flood, 2014).
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

/// Steps of one tensor among some ranks.
struct Case {
    collective: Collective,
    members: Vec<u16>,
    elements: usize,
    tolerance: f64,
    holes: HoleFilling,
}

impl Case {
    fn draw(draws: &mut Draws, ranks: u16, holes: HoleFilling) -> Self {
        let root = Rank(draws.below(usize::from(ranks)) as u16);
        let kinds = [
            Collective::AllReduce,
            Collective::ReduceScatter,
            Collective::Reduce { root },
        ];
        // Whole segments for each rank of any group, so that each hole has as many elements.
        let elements = 60 * SEGMENT / 4 * (1 + draws.below(2));
        Self {
            collective: kinds[draws.below(3)],
            members: (0..ranks).collect(),
            elements,
            tolerance: 0.1 + draws.below(4) as f64 / 10.0,
            holes,
        }
    }

    fn operation(&self, sequence: u32, values: Vec<u8>) -> Operation {
        let ranks = self.members.iter().copied().map(Rank);
        let mut operation = Operation {
            collective: self.collective,
            loss: tolerating(self.tolerance, self.holes),
            tensor_key: KEY,
            ..all_reduce(1, sequence, values)
        };
        operation.group = Group {
            id: self.members.len() as u16,
            ranks: ranks.collect(),
        };
        if let (Collective::ReduceScatter, Buffer::Owned(input)) =
            (self.collective, &operation.buffer)
        {
            let block = input.len() / self.members.len();
            operation.input = Some(Buffer::Owned(input.clone()));
            operation.buffer = Buffer::Owned(vec![0; block]);
        }
        operation
    }

    /// Submits one step on all members.
    fn submit(&self, world: &mut World, step: u32, values: &[Vec<u8>]) {
        for &rank in &self.members {
            let operation = self.operation(step, values[usize::from(rank)].clone());
            world.submit(rank, operation).expect("a valid operation");
        }
    }

    /// The whole result of a step that has succeeded everywhere.
    fn delivered(&self, ends: &[Completion]) -> Vec<f64> {
        let bytes = |end: &Completion| end.buffer.bytes().expect("owned").to_vec();
        let whole = match self.collective {
            Collective::ReduceScatter => ends.iter().flat_map(bytes).collect(),
            Collective::Reduce { root } => {
                let seat = self.members.iter().position(|&rank| Rank(rank) == root);
                bytes(&ends[seat.expect("the root is a member")])
            }
            _ => {
                assert!(ends.iter().all(|end| bytes(end) == bytes(&ends[0])));
                bytes(&ends[0])
            }
        };
        floats(&whole).into_iter().map(f64::from).collect()
    }
}

fn job() -> Job {
    let mut job = small_job();
    job.collectives.chunk = ByteCount::mib(1);
    job
}

/// Whole numbers of a rank and a step, whose sums are exact.
fn gradients(rank: u16, step: u32, elements: usize) -> Vec<u8> {
    let value = |index: usize| ((index * 7 + step as usize * 3) % 11 + 1) << (4 * rank);
    tensor(DType::F32, (0..elements).map(|index| value(index) as f64))
}

fn add(sum: &mut [f64], values: impl IntoIterator<Item = f64>, factor: f64) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += factor * value;
    }
}

/// The residual of a rank, element by element.
fn residual(world: &World, rank: u16, elements: usize) -> Vec<f64> {
    let mut values = vec![0; elements * 4];
    for (key, residual) in world.network.hosts()[usize::from(rank)].residuals().iter() {
        assert_eq!(key, KEY);
        residual.write_to(&mut values);
    }
    floats(&values).into_iter().map(f64::from).collect()
}

fn ends(world: &mut World, members: &[u16]) -> Vec<Completion> {
    let end = |&rank: &u16| world.completion(rank).expect("the operation has ended");
    members.iter().map(end).collect()
}

/// Contributions less results less residuals, of all steps that have succeeded.
struct Account {
    owed: Vec<f64>,
}

impl Account {
    /// Runs a step to its end and enters its values in the books.
    fn step(&mut self, world: &mut World, case: &Case, step: u32) {
        let all = (0..world.ranks).map(|rank| gradients(rank, step, case.elements));
        let all: Vec<Vec<u8>> = all.collect();
        case.submit(world, step, &all);
        world.run();
        let ends = ends(world, &case.members);
        for (&rank, end) in case.members.iter().zip(&ends) {
            assert!(end.result.is_ok(), "rank {rank}: {:?}", end.result);
            let values = floats(&all[usize::from(rank)]);
            add(&mut self.owed, values.into_iter().map(f64::from), 1.0);
        }
        add(&mut self.owed, case.delivered(&ends), -1.0);
    }

    /// The residuals of some ranks are all that is owed.
    fn check(&self, world: &World, members: &[u16], case: &str) {
        let mut left = self.owed.clone();
        for &rank in members {
            let residual = residual(world, rank, self.owed.len());
            add(&mut left, residual, -1.0);
        }
        let wrong = left.iter().filter(|left| **left != 0.0).count();
        assert_eq!(wrong, 0, "{case}: elements that do not add up");
    }
}

/// How a step is broken off.
#[derive(Clone, Copy, Debug)]
enum Break {
    Abort,
    LostPeer(u16),
}

/// Breaks a step off at some time. Returns the members that failed; the others had ended.
fn broken_off(world: &mut World, case: &Case, step: u32, (how, after): (Break, Span)) -> Vec<u16> {
    let all = (0..world.ranks).map(|rank| gradients(rank, step, case.elements));
    case.submit(world, step, &all.collect::<Vec<_>>());
    let at = world.at(after);
    world.network.run_until(at);
    for &rank in &case.members {
        world
            .network
            .command(Rank(rank), |communicator, _| match how {
                Break::LostPeer(lost) if lost != rank => communicator.fail_peer(Rank(lost), "gone"),
                _ => communicator.abort("broken off"),
            });
    }
    let ends = ends(world, &case.members);
    let failed = case.members.iter().zip(&ends);
    let failed = failed.filter(|(_, end)| end.result.is_err());
    failed.map(|(&rank, _)| rank).collect()
}

#[test]
fn error_feedback_owes_exactly_the_missing_values() {
    let (mut kept, mut broken, mut gone_on) = (0, 0, 0);
    for seed in 0..if is_slow() { 2_000 } else { 60 } {
        let mut draws = Draws(seed);
        let ranks = 2 + draws.below(3) as u16;
        let mut case = Case::draw(&mut draws, ranks, HoleFilling::ErrorFeedback);
        let mut world = World::new(ranks, &job(), rough(0.15), seed);
        let mut account = Account {
            owed: vec![0.0; case.elements],
        };
        let steps = 1 + draws.below(3) as u32;
        let told = format!("seed {seed}: {:?}, {ranks} ranks", case.collective);
        for step in 0..steps {
            account.step(&mut world, &case, step);
            account.check(&world, &case.members, &told);
        }
        let before: Vec<_> = (0..ranks)
            .map(|rank| residual(&world, rank, case.elements))
            .collect();
        kept += before
            .iter()
            .flatten()
            .filter(|value| **value != 0.0)
            .count();
        let lost = draws.below(usize::from(ranks)) as u16;
        let how = [Break::Abort, Break::LostPeer(lost)][draws.below(2)];
        let after = Span::from_micros(20 + draws.below(400) as u64);
        let failed = broken_off(&mut world, &case, steps, (how, after));
        for &rank in &failed {
            broken += 1;
            let now = residual(&world, rank, case.elements);
            assert!(
                now == before[usize::from(rank)],
                "{told}, {how:?} on rank {rank}"
            );
        }
        // The survivors continue without the lost rank, whose residual is lost with it.
        let Break::LostPeer(lost) = how else { continue };
        case.members.retain(|&rank| rank != lost);
        let rooted = matches!(case.collective, Collective::Reduce { .. });
        if failed.len() < usize::from(ranks) || case.members.len() < 2 || rooted {
            continue;
        }
        gone_on += 1;
        add(&mut account.owed, before[usize::from(lost)].clone(), -1.0);
        for step in 0..2 {
            account.step(&mut world, &case, step);
            account.check(
                &world,
                &case.members,
                &format!("{told}, without rank {lost}"),
            );
        }
    }
    assert!(
        kept > 1_000 && broken > 50 && gone_on > 5,
        "{kept}, {broken}, {gone_on}"
    );
}

#[test]
fn booked_losses_are_exactly_the_missing_values() {
    let mut holes = 0;
    for seed in 0..if is_slow() { 1_000 } else { 40 } {
        let mut draws = Draws(seed);
        let ranks = 2 + draws.below(3) as u16;
        let case = Case::draw(&mut draws, ranks, HoleFilling::Zero);
        let mut world = World::new(ranks, &job(), rough(0.15), seed);
        let ones = |rank: u16| {
            tensor(
                DType::F32,
                std::iter::repeat_n(f64::from(1 << rank), case.elements),
            )
        };
        let all: Vec<Vec<u8>> = (0..ranks).map(ones).collect();
        case.submit(&mut world, 0, &all);
        world.run();
        let ends = ends(&mut world, &case.members);
        let complete = (1_u32 << ranks) - 1;
        let missing = case.delivered(&ends).into_iter();
        let missing = missing.map(|sum| u64::from((complete - sum as u32).count_ones()));
        let missing: u64 = missing.sum::<u64>() * 4 / SEGMENT as u64;
        let outcomes = ends
            .iter()
            .map(|end| end.result.as_ref().expect("it succeeded"));
        let [mut lost, mut missed] = [0, 0];
        for outcome in outcomes {
            lost += outcome.lost_segments;
            missed += outcome.missed_segments;
        }
        let ledgers = world.network.hosts().iter();
        let booked: u64 = ledgers
            .map(|rank| rank.endpoint().ledger().total().lost_segments)
            .sum();
        let told = format!("seed {seed}: {:?}, {ranks} ranks", case.collective);
        assert_eq!([lost, missed, booked], [missing; 3], "{told}");
        holes += missing;
    }
    assert!(holes > 500, "{holes} holes");
}

#[test]
fn tensors_without_a_key_leave_nothing_for_others() {
    let (ranks, elements) = (3, 20 * SEGMENT);
    let mut lost = 0;
    for (seed, holes) in [HoleFilling::ErrorFeedback, HoleFilling::Previous]
        .into_iter()
        .enumerate()
    {
        let mut world = World::new(ranks, &job(), rough(0.1), seed as u64);
        // Two tensors of one shape: what the first lacks must not turn up in the second.
        for (sequence, value) in [(0, 8.0), (1, 0.0)] {
            let values = tensor(DType::F32, std::iter::repeat_n(value, elements));
            let ends = world.perform(|_| Operation {
                loss: tolerating(0.5, holes),
                tensor_key: 0,
                ..all_reduce(ranks, sequence, values.clone())
            });
            lost += ends.iter().map(|(_, end)| end.lost_segments).sum::<u64>();
            let sum = f64::from(ranks) * value;
            for (bytes, _) in &ends {
                let all = floats(bytes).iter().all(|&found| f64::from(found) == sum);
                assert!(
                    all,
                    "{holes:?}: every element is {sum}, as rescaling makes it"
                );
            }
        }
        for host in world.network.hosts() {
            assert_eq!(host.residuals().iter().count(), 0, "{holes:?}");
        }
    }
    assert!(lost > 0, "no packet was lost for good");
}
