//! The flows of a run: when each begins, which flows trigger others, and how each ended.

use std::collections::{BTreeMap, VecDeque};

use gradwire_protocol::units::Instant;

use crate::engine::host::{Begin, HostProgress};
use gradwire_workloads::workload::{Over, Start, Trigger, TriggerId, Workload};

/// A change of a flow, and its time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlowRecord {
    /// When it happened.
    pub at: Instant,
    /// Number of the flow.
    pub flow: u32,
    /// The change.
    pub change: FlowChange,
}

/// A step in the life of a flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FlowChange {
    /// It began.
    Started,
    /// Its receiver has all that it needs, and accepted the loss of this many bytes.
    Received(u64),
    /// Its sender knows that the receiver needs no more.
    Acknowledged,
}

#[derive(Clone, Debug, Default)]
struct TriggeredFlows {
    told: u32,
    flows: VecDeque<u32>,
}

/// The flows of a workload during a run.
#[derive(Clone, Debug)]
pub struct Flows<'w> {
    workload: &'w Workload,
    /// Those that wait here, by their trigger.
    waiting: BTreeMap<TriggerId, TriggeredFlows>,
    started: VecDeque<u32>,
    records: Vec<FlowRecord>,
    done: u64,
    /// The flows and tasks whose end ends the run; `None`: all of them.
    foreground: Option<Foreground>,
}

/// The flows and tasks whose end ends a run.
#[derive(Clone, Copy, Debug)]
struct Foreground {
    /// The flows below this number.
    flows: u32,
    /// How many flows and tasks have not ended.
    left: u64,
}

impl<'w> Flows<'w> {
    /// The flows of a workload, before any has begun.
    pub fn new(workload: &'w Workload) -> Self {
        let mut flows = Self::without_triggers(workload);
        for (flow, trigger) in triggered(workload) {
            flows.await_trigger(trigger, flow);
        }
        flows
    }

    /// The flows of a workload, of which none waits for a trigger here.
    pub fn without_triggers(workload: &'w Workload) -> Self {
        Self {
            workload,
            waiting: BTreeMap::new(),
            started: VecDeque::new(),
            records: Vec::new(),
            done: 0,
            foreground: match workload.over {
                Over::WithEverything => None,
                Over::WithForeground(flows) => {
                    let tasks = workload.programs.iter().map(|own| own.tasks.len());
                    let left = u64::from(flows) + tasks.sum::<usize>() as u64;
                    Some(Foreground { flows, left })
                }
            },
        }
    }

    /// A flow waits for this trigger here.
    pub fn await_trigger(&mut self, trigger: TriggerId, flow: u32) {
        let waiting = self.waiting.entry(trigger).or_default();
        waiting.flows.push_back(flow);
    }

    /// Whether the foreground has ended; never true without a foreground.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.foreground
            .is_some_and(|foreground| foreground.left == 0)
    }

    /// Begins a flow; returns the order to its host.
    pub fn begin(&mut self, now: Instant, flow: u32) -> Begin {
        let spec = &self.workload.flows[flow as usize];
        self.write(now, flow, FlowChange::Started);
        Begin {
            flow,
            destination: spec.destination,
            bytes: spec.bytes,
            layer: spec.layer,
            layer_count: self.workload.layer_count,
        }
    }

    /// Records the progress of a host, and fires triggers.
    pub fn note(&mut self, now: Instant, progress: HostProgress) {
        if let Some(foreground) = &mut self.foreground {
            foreground.left -= u64::from(foreground.has(progress));
        }
        let told = match progress {
            HostProgress::Received { flow, lost_bytes } => {
                self.done += 1;
                self.write(now, flow, FlowChange::Received(lost_bytes));
                self.workload.flows[flow as usize].when_received
            }
            HostProgress::Acknowledged { flow } => {
                self.write(now, flow, FlowChange::Acknowledged);
                self.workload.flows[flow as usize].when_sent
            }
            HostProgress::Task => {
                self.done += 1;
                None
            }
        };
        if let Some(trigger) = told {
            self.tell(trigger);
        }
    }

    fn write(&mut self, at: Instant, flow: u32, change: FlowChange) {
        self.records.push(FlowRecord { at, flow, change });
    }

    fn tell(&mut self, trigger: TriggerId) {
        let Some(waiting) = self.waiting.get_mut(&trigger) else {
            return;
        };
        waiting.told += 1;
        let fires = match self.workload.triggers[trigger.0 as usize] {
            Trigger::Once => waiting.told == 1,
            Trigger::Barrier(times) => waiting.told == times,
            Trigger::Each => {
                self.started.extend(waiting.flows.pop_front());
                false
            }
        };
        if fires {
            self.started.append(&mut waiting.flows);
        }
    }

    /// Sending host and number of a flow that a trigger has started.
    pub fn take_started(&mut self) -> Option<(u32, u32)> {
        let flow = self.started.pop_front()?;
        Some((self.workload.flows[flow as usize].source, flow))
    }

    /// Flows received and tasks completed.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// All changes, in the order in which they happened.
    pub fn into_records(self) -> Vec<FlowRecord> {
        self.records
    }
}

impl Foreground {
    /// Whether a flow or task that must end has ended.
    fn has(&self, progress: HostProgress) -> bool {
        match progress {
            HostProgress::Received { flow, .. } => flow < self.flows,
            HostProgress::Acknowledged { .. } => false,
            HostProgress::Task => true,
        }
    }
}

/// Number and trigger of every flow that a trigger starts.
pub fn triggered(workload: &Workload) -> impl Iterator<Item = (u32, TriggerId)> {
    let flows = (0..).zip(&workload.flows);
    flows.filter_map(|(index, flow)| match flow.start {
        Start::On(trigger) => Some((index, trigger)),
        Start::At(_) => None,
    })
}

/// Time, sending host and number of every flow that begins at a time of its own.
pub fn due_at_times(workload: &Workload) -> impl Iterator<Item = (Instant, u32, u32)> {
    let flows = (0..).zip(&workload.flows);
    flows.filter_map(|(index, flow)| match flow.start {
        Start::At(at) => Some((at, flow.source, index)),
        Start::On(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::ByteCount;

    use super::*;
    use gradwire_workloads::workload::Flow;

    fn workload(trigger: Trigger) -> Workload {
        let waits = |destination| Flow {
            start: Start::On(TriggerId(0)),
            ..Flow::new(0, destination, ByteCount::new(1))
        };
        let tells = Flow {
            when_sent: Some(TriggerId(0)),
            ..Flow::new(0, 1, ByteCount::new(1))
        };
        Workload {
            flows: vec![tells.clone(), tells, waits(2), waits(3)],
            triggers: vec![trigger],
            ..Workload::default()
        }
    }

    fn started_after_each_end(trigger: Trigger) -> [Vec<u32>; 2] {
        let workload = workload(trigger);
        let mut flows = Flows::new(&workload);
        [0, 1].map(|flow| {
            flows.note(Instant::START, HostProgress::Acknowledged { flow });
            let started = std::iter::from_fn(|| flows.take_started());
            started.map(|(_, flow)| flow).collect()
        })
    }

    #[test]
    fn a_trigger_starts_all_once_or_one_each_time_or_waits_for_all() {
        let nothing = Vec::<u32>::new;
        assert_eq!(
            started_after_each_end(Trigger::Once),
            [vec![2, 3], nothing()]
        );
        assert_eq!(started_after_each_end(Trigger::Each), [vec![2], vec![3]]);
        let barrier = started_after_each_end(Trigger::Barrier(2));
        assert_eq!(barrier, [nothing(), vec![2, 3]]);
    }
}
