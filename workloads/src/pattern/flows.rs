//! Patterns of flows: one, permutation, incast, all-to-all.

use gradwire_protocol::job::notation as job;
use gradwire_protocol::units::{ByteCount, Instant, Span};
use rand::seq::{SliceRandom, index};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{PatternError, PatternLine, notation};
use crate::arrivals::DrawLimits;
use crate::workload::{Flow, Start, Trigger, TriggerId, Workload};

const INCAST: &str = "incast";

impl PatternLine<'_> {
    /// Sends from the first host to the last, the farthest one in a fabric that is numbered from
    /// one side to the other.
    pub(super) fn one(&self, rest: &str) -> Result<Workload, PatternError> {
        let bytes = self.flow_size("one", rest)?;
        self.needs_hosts(2)?;
        Ok(of_flows(vec![Flow::new(0, self.hosts.count - 1, bytes)]))
    }

    /// Draws until no host sends to itself, so that all such permutations are equally likely; this
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

    /// Makes one incast, or with `every` and `for` several, each into another host.
    pub(super) fn incast(&self, rest: &str) -> Result<Workload, PatternError> {
        let form = |what| self.form(INCAST, what);
        let (burst, options) = match rest.split_once(',') {
            None => (rest, None),
            Some((burst, options)) => (burst, Some(options)),
        };
        let (senders, size) = burst
            .split_once('x')
            .ok_or_else(|| form("it needs senders x size".to_owned()))?;
        let senders: u32 = senders
            .trim()
            .parse()
            .ok()
            .filter(|&senders| senders > 0)
            .ok_or_else(|| form(format!("`{senders}` is not a number of senders")))?;
        let bytes = self.flow_size(INCAST, size)?;
        self.needs_hosts(u64::from(senders) + 1)?;
        let mut rng = self.rng();
        if let Some(options) = options {
            let starts = self.starts(options, senders)?;
            let bursts = starts.into_iter().flat_map(|start| {
                let flows = self.burst(&mut rng, senders, bytes).into_iter();
                flows.map(move |flow| Flow { start, ..flow })
            });
            return Ok(of_flows(bursts.collect()));
        }
        if senders + 1 == self.hosts.count {
            let flows = (1..self.hosts.count).map(|from| Flow::new(from, 0, bytes));
            return Ok(of_flows(flows.collect()));
        }
        Ok(of_flows(self.burst(&mut rng, senders, bytes)))
    }

    /// Makes flows from drawn hosts to a drawn host.
    fn burst(&self, rng: &mut ChaCha8Rng, senders: u32, bytes: ByteCount) -> Vec<Flow> {
        let receiver = rng.random_range(0..self.hosts.count);
        let others = (self.hosts.count - 1) as usize;
        let drawn = index::sample(rng, others, senders as usize);
        let flows = drawn.into_iter().map(|drawn| {
            let drawn = drawn as u32;
            let source = drawn + u32::from(drawn >= receiver);
            Flow::new(source, receiver, bytes)
        });
        flows.collect()
    }

    /// Reads the starts of bursts from `every=1ms,for=50ms`.
    fn starts(&self, options: &str, senders: u32) -> Result<Vec<Start>, PatternError> {
        let (mut every, mut length) = (None, None);
        for option in options.split(',') {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            let place = match key.trim() {
                "every" => &mut every,
                "for" => &mut length,
                other => {
                    let what = format!("unknown key `{other}`; known are every and for");
                    return Err(self.form(INCAST, what));
                }
            };
            let span = job::span(value.trim()).filter(|span| *span > Span::ZERO);
            let wrong = || format!("{key}=`{value}`: it needs a time such as 1ms");
            *place = Some(span.ok_or_else(|| self.form(INCAST, wrong()))?);
        }
        let (Some(every), Some(length)) = (every, length) else {
            return Err(self.form(INCAST, "every=TIME and for=TIME go together"));
        };
        let bursts = length.as_picos().div_ceil(every.as_picos());
        let until = self.limits.until.as_picos();
        let bursts = bursts.min(until.div_ceil(every.as_picos()));
        let (flows, most) = (bursts.saturating_mul(u64::from(senders)), self.limits.flows);
        if flows > most {
            let memory = DrawLimits::memory(flows);
            let what = format!(
                "{bursts} bursts of {senders} take {memory} or more; at most {most} flows in all"
            );
            return Err(self.form(INCAST, what));
        }
        let starts = (0..bursts).map(|burst| Start::At(Instant::START + every * burst));
        Ok(starts.collect())
    }

    /// Host `i` sends to `i + 1`, `i + 2` and so on, so that they do not all send to one receiver
    /// at once.
    pub(super) fn all_to_all(&self, rest: &str) -> Result<Workload, PatternError> {
        let (size, parallel) = match rest.split_once(',') {
            None => (rest, u32::MAX),
            Some((size, option)) => (size, self.parallel(option)?),
        };
        let bytes = self.flow_size("all-to-all", size)?;
        self.needs_hosts(2)?;
        let hosts = self.hosts.count;
        let flows = u64::from(hosts) * u64::from(hosts - 1);
        let most = self.limits.flows;
        if flows > most {
            let memory = DrawLimits::memory(flows);
            let fault = format!(
                " has {flows} flows on {hosts} hosts, which take {memory} or more; at most \
                 {most} flows: use fewer hosts"
            );
            return Err(self.hosts_fault(fault));
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
            self.form(name, notation::not_a_size(text, units))
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
