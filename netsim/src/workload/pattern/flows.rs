//! Patterns of flows: one, permutation, incast, all-to-all.

use gradwire_protocol::units::ByteCount;
use rand::seq::{SliceRandom, index};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Line, PatternError, notation};
use crate::workload::{Flow, Start, Trigger, TriggerId, Workload};

impl Line<'_> {
    /// From the first host to the last, which no other is farther from in a fabric that is
    /// numbered from one side to the other.
    pub(super) fn one(&self, rest: &str) -> Result<Workload, PatternError> {
        let bytes = self.flow_size("one", rest)?;
        self.needs_hosts(2)?;
        Ok(of_flows(vec![Flow::new(0, self.hosts.count - 1, bytes)]))
    }

    /// Draws until nobody sends to itself, so that all such permutations are equally likely; that
    /// takes e draws on average.
    pub(super) fn permutation(&self, rest: &str) -> Result<Workload, PatternError> {
        let bytes = self.flow_size("permutation", rest)?;
        self.needs_hosts(2)?;
        let mut rng = self.rng();
        let mut to: Vec<u32> = (0..self.hosts.count).collect();
        while (0..).zip(&to).any(|(source, &to)| source == to) {
            to.shuffle(&mut rng);
        }
        let flows = (0..).zip(to);
        Ok(of_flows(
            flows.map(|(from, to)| Flow::new(from, to, bytes)).collect(),
        ))
    }

    pub(super) fn incast(&self, rest: &str) -> Result<Workload, PatternError> {
        let form = |what| self.form("incast", what);
        let (senders, size) = rest
            .split_once('x')
            .ok_or_else(|| form("it needs senders x size".to_owned()))?;
        let senders: u32 = senders
            .trim()
            .parse()
            .ok()
            .filter(|&senders| senders > 0)
            .ok_or_else(|| form(format!("`{senders}` is no number of senders")))?;
        let bytes = self.flow_size("incast", size)?;
        self.needs_hosts(u64::from(senders) + 1)?;
        if senders + 1 == self.hosts.count {
            let flows = (1..self.hosts.count).map(|from| Flow::new(from, 0, bytes));
            return Ok(of_flows(flows.collect()));
        }
        let mut rng = self.rng();
        let receiver = rng.random_range(0..self.hosts.count);
        let others = (self.hosts.count - 1) as usize;
        let drawn = index::sample(&mut rng, others, senders as usize);
        let flows = drawn.into_iter().map(|drawn| {
            let drawn = drawn as u32;
            let source = drawn + u32::from(drawn >= receiver);
            Flow::new(source, receiver, bytes)
        });
        Ok(of_flows(flows.collect()))
    }

    /// Host `i` sends to `i + 1`, `i + 2` and so on, so that no receiver is met by all at once.
    pub(super) fn all_to_all(&self, rest: &str) -> Result<Workload, PatternError> {
        let (size, parallel) = match rest.split_once(',') {
            None => (rest, u32::MAX),
            Some((size, option)) => (size, self.parallel(option)?),
        };
        let bytes = self.flow_size("all-to-all", size)?;
        self.needs_hosts(2)?;
        let hosts = self.hosts.count;
        if hosts.checked_mul(hosts - 1).is_none() {
            let given = self.text.to_owned();
            return Err(PatternError::TooManyFlows { given, hosts });
        }
        let limited = parallel < hosts - 1;
        let flows = (0..hosts).flat_map(|source| {
            (1..hosts).map(move |step| {
                let mut flow = Flow::new(source, around(source, step, hosts), bytes);
                if limited {
                    flow.when_sent = Some(TriggerId(source));
                }
                if limited && step > parallel {
                    flow.start = Start::On(TriggerId(source));
                }
                flow
            })
        });
        let mut workload = of_flows(flows.collect());
        if limited {
            workload.triggers = vec![Trigger::Each; hosts as usize];
        }
        Ok(workload)
    }

    fn parallel(&self, option: &str) -> Result<u32, PatternError> {
        let value = option.trim().strip_prefix("parallel=");
        let parallel = value.and_then(|value| value.trim().parse().ok());
        parallel.filter(|&parallel| parallel > 0).ok_or_else(|| {
            let what = format!("`{option}` is not `parallel=` and a number from 1");
            self.form("all-to-all", what)
        })
    }

    fn flow_size(&self, name: &str, text: &str) -> Result<ByteCount, PatternError> {
        notation::size(text).ok_or_else(|| {
            let units = "bytes, KB, MB, GB (powers of 1,000) or KiB, MiB, GiB (powers of 1,024)";
            self.form(name, format!("`{text}` is no size ({units})"))
        })
    }

    fn rng(&self) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.seed)
    }
}

fn of_flows(flows: Vec<Flow>) -> Workload {
    Workload {
        flows,
        ..Workload::default()
    }
}

fn around(host: u32, step: u32, hosts: u32) -> u32 {
    ((u64::from(host) + u64::from(step)) % u64::from(hosts)) as u32
}
