//! A host's program on a reference transport: tasks in their turn, and for each collective the
//! messages of its outline, every one a flow of its own.
//!
//! A flow begins when the outline and the scheduler let it: messages of known layers pass the
//! [`Scheduler`] of `gradwire_collectives`, as a job's `collectives.order` and `collectives.credit`
//! say; all others begin at once. A receiver accepts flows at any time, whether it has started the
//! task or not. The `Communicator` differs: it lets long messages wait for their receiver.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gradwire_collectives::outline::{OutlineEnd, OutlineGate, OutlineSend};
use gradwire_collectives::scheduler::{ReadyMessage, Scheduler};
use gradwire_protocol::job::Job;
use gradwire_protocol::priority::{Policy, Urgency};
use gradwire_protocol::units::{ByteCount, Instant, Layer, Step};

use super::manifest::{Itinerary, Manifest};
use crate::engine::host::{Begin, HostProgress};
use crate::results::outcome::TaskOutcome;
use crate::transports::settings::ReferenceSettings;
use crate::transports::tasks::{Segments, Tasks};
use gradwire_workloads::workload::{Program, Work};

/// A program and its progress.
#[derive(Debug)]
pub(crate) struct MessagePlayer {
    host: u32,
    settings: ReferenceSettings,
    manifest: Arc<Manifest>,
    tasks: Tasks,
    /// Tasks that are being carried.
    active: BTreeMap<u32, Active>,
    /// Messages in, of tasks that have not started.
    early: BTreeMap<u32, Vec<u32>>,
    scheduler: Scheduler<Begin>,
    policy: Policy,
    /// Flows that are to begin now.
    begins: VecDeque<Begin>,
}

/// The order in which messages leave: older steps first, then the more urgent ones.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct MessageTurn(u32, Urgency);

impl MessageTurn {
    /// Of a message of a step; without layers it is as urgent as the front layer's.
    pub(crate) fn of(Step(step): Step, urgency: Option<Urgency>) -> Self {
        Self(step, urgency.unwrap_or_default())
    }
}

/// A task that is being carried.
#[derive(Debug)]
struct Active {
    /// For each gate, how many messages it still waits for.
    waits: Vec<u32>,
    /// Messages in that are not received.
    to_come: usize,
    /// Messages out that have not started.
    to_start: usize,
    /// Messages out that have not been received.
    to_arrive: usize,
}

impl Active {
    fn is_over(&self, end: OutlineEnd) -> bool {
        let left = match end {
            OutlineEnd::AllDone => self.to_arrive,
            OutlineEnd::AllStarted => self.to_start,
        };
        self.to_come == 0 && left == 0
    }
}

impl MessagePlayer {
    /// A program whose messages a manifest numbers.
    pub(crate) fn new(
        program: &Program,
        manifest: &Arc<Manifest>,
        job: &Job,
        settings: &ReferenceSettings,
    ) -> Self {
        Self {
            host: program.host,
            settings: *settings,
            manifest: Arc::clone(manifest),
            tasks: Tasks::new(program),
            active: BTreeMap::new(),
            early: BTreeMap::new(),
            scheduler: Scheduler::new(job.collectives.credit),
            policy: job.policy(),
            begins: VecDeque::new(),
        }
    }

    /// When it has work to do without progress of a flow.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        self.tasks.wakes_at()
    }

    /// Starts and ends all tasks that can start or end now.
    pub(crate) fn go_on(&mut self, now: Instant) {
        self.tasks.begin();
        self.tasks.end_computations(now);
        while let Some(task) = self.tasks.next_carried(now) {
            self.start(now, task);
            self.tasks.end_computations(now);
        }
    }

    /// A message to this host has arrived.
    pub(crate) fn received(&mut self, now: Instant, message: u32) {
        let entry = self.manifest.received(message);
        if self.active.contains_key(&entry.task) {
            self.take(entry.task, entry.index);
            self.end_if_over(now, entry.task);
        } else {
            self.early.entry(entry.task).or_default().push(entry.index);
        }
    }

    /// A message of this host is known to have arrived.
    pub(crate) fn acknowledged(&mut self, now: Instant, message: u32) {
        let entry = self.manifest.sent(message);
        let manifest = Arc::clone(&self.manifest);
        let itinerary = manifest.itinerary(self.host, entry.task);
        if let Some(itinerary) = itinerary
            && self.urgency(entry.task, &itinerary).is_some()
        {
            let send = &itinerary.outline.sends[entry.index as usize];
            self.scheduler.finished(length(send));
            self.let_go();
        }
        if let Some(active) = self.active.get_mut(&entry.task) {
            active.to_arrive -= 1;
            self.end_if_over(now, entry.task);
        }
    }

    /// The turn of a message of this host.
    pub(crate) fn turn(&self, message: u32) -> MessageTurn {
        let entry = self.manifest.sent(message);
        let itinerary = self.manifest.itinerary(self.host, entry.task);
        let urgency = itinerary.and_then(|itinerary| self.urgency(entry.task, &itinerary));
        MessageTurn::of(Step(self.tasks.task(entry.task).step), urgency)
    }

    /// Whether a task of this host has started.
    pub(crate) fn has_started(&self, task: u32) -> bool {
        self.tasks.has_started(task)
    }

    /// The next flow that is to begin now.
    pub(crate) fn next_begin(&mut self) -> Option<Begin> {
        self.begins.pop_front()
    }

    /// Reports a task that has ended, once for each.
    pub(crate) fn progress(&mut self) -> Option<HostProgress> {
        self.tasks.progress()
    }

    /// The outcomes of all tasks.
    pub(crate) fn outcomes(&self) -> Vec<TaskOutcome> {
        self.tasks.outcomes()
    }

    fn start(&mut self, now: Instant, task: u32) {
        let manifest = Arc::clone(&self.manifest);
        let Some(itinerary) = manifest.itinerary(self.host, task) else {
            return;
        };
        let outline = itinerary.outline;
        let active = Active {
            waits: outline.gates.iter().map(|gate| gate.waits).collect(),
            to_come: outline.receives.len(),
            to_start: outline.sends.len(),
            to_arrive: outline.sends.len(),
        };
        self.active.insert(task, active);
        for (gate, at) in outline.gates.iter().zip(0..) {
            if gate.waits == 0 {
                self.open(task, &itinerary, at);
            }
        }
        for index in self.early.remove(&task).unwrap_or_default() {
            self.take(task, index);
        }
        self.end_if_over(now, task);
    }

    /// A task that is being carried has a message.
    fn take(&mut self, task: u32, index: u32) {
        let manifest = Arc::clone(&self.manifest);
        let Some(itinerary) = manifest.itinerary(self.host, task) else {
            return;
        };
        let gate = itinerary.outline.receives[index as usize].gate;
        if let Some(active) = self.active.get_mut(&task) {
            active.to_come -= 1;
            if active.waits_no_more(gate) {
                self.open(task, &itinerary, gate);
            }
        }
    }

    fn open(&mut self, task: u32, itinerary: &Itinerary<'_>, gate: u32) {
        let outline = itinerary.outline;
        let mut opening = vec![gate];
        while let Some(gate) = opening.pop() {
            let OutlineGate { sends, next, .. } = &outline.gates[gate as usize];
            for at in sends.clone() {
                self.send(task, itinerary, at);
            }
            let followers = &outline.followers[next.start as usize..next.end as usize];
            if let Some(active) = self.active.get_mut(&task) {
                active.to_start -= sends.len();
                let open = followers.iter().copied();
                opening.extend(open.filter(|&next| active.waits_no_more(next)));
            }
        }
        self.let_go();
    }

    fn send(&mut self, task: u32, itinerary: &Itinerary<'_>, at: u32) {
        let send = &itinerary.outline.sends[at as usize];
        let begin = Begin {
            flow: itinerary.first + at,
            destination: itinerary.hosts[usize::from(send.to)],
            bytes: length(send),
            layer: Layer(0),
            layer_count: 0,
        };
        match self.urgency(task, itinerary) {
            None => self.begins.push_back(begin),
            Some(urgency) => {
                let post = ReadyMessage {
                    step: Step(self.tasks.task(task).step),
                    urgency,
                    bytes: begin.bytes,
                };
                self.scheduler.post(post, begin);
            }
        }
    }

    fn let_go(&mut self) {
        self.begins
            .extend(std::iter::from_fn(|| self.scheduler.next()));
    }

    /// How urgent the messages of a task are, or those of the front layer if layers are not known.
    /// `None` if no layers are known at all.
    fn urgency(&self, task: u32, itinerary: &Itinerary<'_>) -> Option<Urgency> {
        let Work::Collective { kind, layers, .. } = &self.tasks.task(task).work else {
            return None;
        };
        let front = layers.iter().map(|&(_, layer)| layer).min();
        let front = front.unwrap_or(Layer(0));
        let unit = kind.urgency_unit();
        self.policy.urgency([front], itinerary.layer_count, unit)
    }

    fn end_if_over(&mut self, now: Instant, task: u32) {
        let manifest = Arc::clone(&self.manifest);
        let (Some(itinerary), Some(active)) =
            (manifest.itinerary(self.host, task), self.active.get(&task))
        else {
            return;
        };
        if !active.is_over(itinerary.outline.end) {
            return;
        }
        self.active.remove(&task);
        let receives = itinerary.outline.receives.iter();
        let packets = receives.map(|one| self.settings.packets(ByteCount::new(one.bytes.into())));
        let segments = Segments {
            expected: packets.map(u64::from).sum(),
            lost: 0,
        };
        self.tasks.end(now, task, segments);
    }
}

impl Active {
    /// A gate waits for one message less; returns whether it opens now.
    fn waits_no_more(&mut self, gate: u32) -> bool {
        let waits = &mut self.waits[gate as usize];
        *waits -= 1;
        *waits == 0
    }
}

/// A message without payload, as of a barrier, is a flow of one byte.
fn length(send: &OutlineSend) -> ByteCount {
    ByteCount::new(u64::from(send.bytes.max(1)))
}
