//! A run without packets: the same programs, messages and order of departure, on links that
//! messages share as fluids do. It predicts a packet-level run in a hundredth of its time.
//!
//! - Tasks, gates and credit are those of the reference transports (`player`), so no rule of a
//!   program is repeated here.
//! - A message goes over two resources: the link up from its host and the link down to its
//!   receiver. `sharing` divides them: older steps first, then front layers, equal messages alike.
//! - A message between two hosts waits for those before it, and a long one for its receiver to post
//!   it.
//! - A message takes the delay of the way there on top of that to arrive, and as long again to be
//!   acknowledged.
//!
//! No queue, window, loss or repair is here: [`FluidLink`] has the share of a link that payload
//! gets.

mod sharing;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Instant, Rate, Span};
use gradwire_workloads::workload::{Program, Workload};

use crate::results::outcome::TaskOutcome;
use crate::transports::reference::manifest::{Manifest, Summing, TooMany};
use crate::transports::reference::player::{MessagePlayer, MessageTurn};
use crate::transports::settings::ReferenceSettings;
use sharing::{Demand, Shares};

pub use sharing::LinkSide;

/// A link of a host: payload per second in each direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FluidLink {
    /// From the host.
    pub up: Rate,
    /// To the host.
    pub down: Rate,
}

/// Everything that a fluid run depends on.
#[derive(Clone, Debug)]
pub struct FluidSetup<'a> {
    /// Programs; flows are not part of a fluid run.
    pub workload: &'a Workload,
    /// The job: its algorithm, chunk, credit, order and unscheduled start.
    pub job: &'a Job,
    /// The link of each host.
    pub links: Vec<FluidLink>,
    /// From the last bit of a message on its link until its receiver has it.
    pub one_way: Span,
    /// The hosts whose programs run.
    pub extent: FluidExtent,
}

/// The hosts of a fluid run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FluidExtent {
    /// All.
    Whole,
    /// One host, for a workload with a single program that all members of all groups run in
    /// lockstep: the host receives a message as soon as it has sent its own message of the same
    /// place. Where messages differ by rank, as in a tree, each member runs a copy of the program.
    First,
}

/// A message of a fluid run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FluidMessage {
    /// The hosts that send and receive.
    pub hosts: (u32, u32),
    /// The tasks that it belongs to, at its sender and its receiver.
    pub tasks: (u32, u32),
    /// Its length.
    pub bytes: u64,
    /// When the scheduler let it go.
    pub begun: Instant,
    /// When its first byte left.
    pub first: Instant,
    /// When it had arrived.
    pub arrived: Instant,
    /// When its sender knew that.
    pub acknowledged: Instant,
    /// The link that held it up longest.
    pub bound: LinkSide,
}

/// The outcome of a fluid run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FluidOutcome {
    /// Tasks by host, then index.
    pub tasks: Vec<TaskOutcome>,
    /// Messages that arrived, in the order of their arrival.
    pub messages: Vec<FluidMessage>,
}

/// Why a workload has no fluid run.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FluidError {
    /// More messages than numbers.
    #[error("{0} messages, allowed are 2^32: take a larger collectives.chunk or fewer steps")]
    Messages(u64),
    /// A run that ends after the last time that there is.
    #[error(
        "{messages} messages have not arrived after 213 days: give the links of hosts {from} and \
         {to} a higher rate, or send less"
    )]
    Endless {
        /// How many are left.
        messages: usize,
        /// The sender of the first.
        from: u32,
        /// Its receiver.
        to: u32,
    },
    /// A program on a host without a link.
    #[error("host {host} has a program and no link: give a link for each of its hosts")]
    Link {
        /// The host.
        host: u32,
    },
}

/// Runs the programs of a checked workload.
///
/// # Errors
/// [`FluidError`] when the workload is too large or has a host without a link.
pub fn run(setup: &FluidSetup<'_>) -> Result<FluidOutcome, FluidError> {
    let mut run = FluidRun::new(setup)?;
    run.settle();
    while let Some(next) = run.next_change() {
        run.check_time(next)?;
        run.advance(next);
        run.settle();
    }
    Ok(run.outcome())
}

/// A message on its way.
#[derive(Debug)]
struct Transfer {
    /// Its number in the manifest.
    number: u32,
    message: FluidMessage,
    left: f64,
    /// Time spent behind each side's link.
    held: [f64; 2],
    has_left: bool,
}

/// Something that happens later.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Later {
    Arrives(u32),
    Acknowledged(u32),
}

/// The messages of a pair of hosts by their turn, then in the order in which they began.
type PairQueue = BTreeMap<(MessageTurn, u32), Transfer>;

struct FluidRun<'a> {
    setup: &'a FluidSetup<'a>,
    manifest: Arc<Manifest>,
    /// The host that stands for all, if one does.
    only: Option<u32>,
    players: BTreeMap<u32, MessagePlayer>,
    pairs: BTreeMap<(u32, u32), PairQueue>,
    shares: Shares,
    /// The demands among which `rates` divide the links.
    demands: Vec<Demand>,
    rates: Vec<(Demand, sharing::LinkShare)>,
    later: BinaryHeap<Reverse<(Instant, Later)>>,
    on_their_way: BTreeMap<u32, FluidMessage>,
    messages: Vec<FluidMessage>,
    /// How many messages have begun.
    begun: u32,
    now: Instant,
}

impl<'a> FluidRun<'a> {
    fn new(setup: &'a FluidSetup<'a>) -> Result<Self, FluidError> {
        let FluidSetup { workload, job, .. } = setup;
        let mut programs = workload.programs.iter();
        if let Some(program) = programs.find(|one| one.host as usize >= setup.links.len()) {
            let host = program.host;
            return Err(FluidError::Link { host });
        }
        let numbered = |workload: &Workload| {
            let manifest = Manifest::new(workload, job, 0, Summing::Hosts);
            manifest.map_err(|TooMany(n)| FluidError::Messages(n))
        };
        let mut manifest = numbered(workload)?;
        let first = workload.programs.first().map(|program| program.host);
        let first = first.filter(|_| setup.extent == FluidExtent::First);
        let only = first.filter(|&host| manifest.is_mirrored(host));
        let everyone = (first.is_some() && only.is_none()).then(|| copied(workload));
        if let Some(everyone) = &everyone {
            manifest = numbered(everyone)?;
        }
        let manifest = Arc::new(manifest);
        let packets = ReferenceSettings::of_messages(Rate::from_gbps(1));
        let player = |program| MessagePlayer::new(program, &manifest, job, &packets);
        let players = &everyone.as_ref().unwrap_or(workload).programs;
        Ok(Self {
            players: players.iter().map(|one| (one.host, player(one))).collect(),
            manifest,
            only,
            pairs: BTreeMap::new(),
            shares: Shares::new(&setup.links),
            demands: Vec::new(),
            rates: Vec::new(),
            later: BinaryHeap::new(),
            on_their_way: BTreeMap::new(),
            messages: Vec::new(),
            begun: 0,
            now: Instant::START,
            setup,
        })
    }

    /// Lets every program continue, and shares out the links anew.
    fn settle(&mut self) {
        let now = self.now;
        let mut begun = Vec::new();
        for (&host, player) in &mut self.players {
            player.go_on(now);
            while let Some(begin) = player.next_begin() {
                let turn = player.turn(begin.flow);
                begun.push((host, begin, turn));
            }
        }
        for (host, begin, turn) in begun {
            let message = FluidMessage {
                hosts: (host, begin.destination),
                tasks: (
                    self.manifest.sent(begin.flow).task,
                    self.manifest.received(begin.flow).task,
                ),
                bytes: begin.bytes.get(),
                begun: now,
                first: now,
                arrived: now,
                acknowledged: now,
                bound: LinkSide::Up,
            };
            let transfer = Transfer {
                number: begin.flow,
                left: message.bytes as f64 * 8.0,
                message,
                held: [0.0; 2],
                has_left: false,
            };
            let pair = self.pairs.entry(message.hosts).or_default();
            pair.insert((turn, self.begun), transfer);
            self.begun += 1;
        }
        let demands = self.demands();
        if demands != self.demands {
            self.rates = self.shares.divide(&demands);
            self.demands = demands;
        }
    }

    /// The first message of each pair that its receiver takes.
    fn demands(&self) -> Vec<Demand> {
        let unscheduled = self.setup.job.transport.unscheduled;
        let pairs = self.pairs.iter().filter_map(|(&hosts, queue)| {
            let taken = |transfer: &Transfer| {
                let short = ByteCount::new(transfer.message.bytes) <= unscheduled;
                let receiver = &self.players[&self.only.unwrap_or(hosts.1)];
                short || transfer.has_left || receiver.has_started(transfer.message.tasks.1)
            };
            let (&(turn, number), _) = queue.iter().find(|(_, transfer)| taken(transfer))?;
            Some(Demand {
                turn,
                hosts,
                number,
            })
        });
        pairs.collect()
    }

    fn next_change(&self) -> Option<Instant> {
        let ends = self.rates.iter().filter_map(|(demand, share)| {
            let transfer = &self.pairs[&demand.hosts][&(demand.turn, demand.number)];
            let picos = transfer.left / share.bits_per_pico;
            picos
                .is_finite()
                .then(|| self.now + Span::from_picos(picos.ceil().max(0.0) as u64))
        });
        let wakes = self.players.values().filter_map(MessagePlayer::wakes_at);
        let later = self.later.peek().map(|Reverse((at, _))| *at);
        let next = ends.chain(wakes).chain(later).min()?;
        Some(next.max(self.now))
    }

    /// Refuses a message that would arrive after the last time that can be told.
    fn check_time(&self, next: Instant) -> Result<(), FluidError> {
        match self.rates.first() {
            Some((Demand { hosts, .. }, _)) if next == Instant::from_picos(u64::MAX) => {
                let (from, to) = *hosts;
                let messages = self.pairs.values().map(BTreeMap::len).sum();
                Err(FluidError::Endless { messages, from, to })
            }
            _ => Ok(()),
        }
    }

    fn advance(&mut self, to: Instant) {
        let took = to.since(self.now).as_picos() as f64;
        for (demand, share) in &self.rates {
            let key = (demand.turn, demand.number);
            let queue = self.pairs.get_mut(&demand.hosts);
            let queue = queue.expect("a demand is of a pair with messages");
            let transfer = queue.get_mut(&key).expect("and of its first message");
            transfer.held[share.bound as usize] += took;
            if share.bits_per_pico <= 0.0 {
                continue;
            }
            if !transfer.has_left {
                transfer.has_left = true;
                transfer.message.first = self.now;
            }
            transfer.left -= share.bits_per_pico * took;
            // Less than a bit is left by rounding.
            if transfer.left > 0.5 {
                continue;
            }
            let ended = queue.remove(&key).expect("it was there");
            let number = ended.number;
            let message = ended.ended(to, self.setup.one_way);
            self.later
                .push(Reverse((message.arrived, Later::Arrives(number))));
            self.later
                .push(Reverse((message.acknowledged, Later::Acknowledged(number))));
            self.on_their_way.insert(number, message);
        }
        self.pairs.retain(|_, queue| !queue.is_empty());
        self.now = to;
        while self.later.peek().is_some_and(|Reverse((at, _))| *at <= to) {
            let Some(Reverse((_, what))) = self.later.pop() else {
                return;
            };
            self.tell(what);
        }
    }

    fn tell(&mut self, what: Later) {
        match what {
            Later::Arrives(number) => {
                let to = self.on_their_way[&number].hosts.1;
                let (to, heard) = match self.only {
                    Some(host) => (host, self.manifest.mirror(number)),
                    None => (to, Some(number)),
                };
                if let (Some(player), Some(heard)) = (self.players.get_mut(&to), heard) {
                    player.received(self.now, heard);
                }
            }
            Later::Acknowledged(number) => {
                let message = self.on_their_way.remove(&number);
                let message = message.expect("a message is acknowledged once");
                if let Some(player) = self.players.get_mut(&message.hosts.0) {
                    player.acknowledged(self.now, number);
                }
                self.messages.push(message);
            }
        }
    }

    fn outcome(self) -> FluidOutcome {
        let tasks = self.players.into_values();
        let mut messages = self.messages;
        messages.sort_by_key(|message| message.arrived);
        FluidOutcome {
            tasks: tasks.flat_map(|player| player.outcomes()).collect(),
            messages,
        }
    }
}

/// A workload in which each member of a group has a copy of the first program.
fn copied(workload: &Workload) -> Workload {
    let mut everyone = workload.clone();
    let members: BTreeSet<u32> = workload.groups.iter().flatten().copied().collect();
    let copies = workload.programs.iter().take(1).flat_map(|first| {
        let others = members.iter().filter(|&&host| host != first.host);
        others.map(|&host| Program {
            host,
            ..first.clone()
        })
    });
    everyone.programs.extend(copies);
    everyone.programs.sort_by_key(|program| program.host);
    everyone
}

impl Transfer {
    fn ended(self, at: Instant, one_way: Span) -> FluidMessage {
        let bound = match self.held[LinkSide::Down as usize] > self.held[LinkSide::Up as usize] {
            true => LinkSide::Down,
            false => LinkSide::Up,
        };
        FluidMessage {
            arrived: at + one_way,
            acknowledged: at + one_way + one_way,
            bound,
            ..self.message
        }
    }
}
