//! Every message of all programs of a workload, numbered before the run: each is a flow.
//!
//! The tasks of several hosts that belong together are a meeting: the n-th collective of a group on
//! all its members, or a send and its receive. A meeting has a shape, its list of senders,
//! receivers and lengths (`gradwire_collectives::outline`). Meetings of one kind, size and number
//! of hosts share a shape, so steps and groups of equal size cost no memory of their own. The
//! messages of a meeting have consecutive numbers, seat by seat, so both ends know a message by its
//! number alone. A member of a group without a program does what the first member with one does.
//!
//! Where switches add up ([`Summing::Switches`]), an all-reduce whose algorithm is left open has
//! one message from each seat to the next, whose packets are contributions ([`SumFlow`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use gradwire_collectives::aggregation::MEMBERS_MAX;
use gradwire_collectives::operation::{Collective, Group};
use gradwire_collectives::outline::{
    CollectiveOutline, OutlineGate, OutlineReceive, OutlineSend, Outliner,
};
use gradwire_protocol::job::{Job, ReduceAlgorithm};
use gradwire_protocol::units::{ByteCount, Rank};

use crate::transports::operations;
use gradwire_workloads::workload::{CollectiveKind, Work, Workload};

/// The longest tensor that switches add up, since a message knows its length in 32 bits.
const MESSAGE_BYTES_MAX: u64 = u32::MAX as u64;

/// All messages of a workload's programs.
#[derive(Debug)]
pub(crate) struct Manifest {
    shapes: Vec<MeetingShape>,
    /// In the order of the numbers of their messages.
    meetings: Vec<Meeting>,
    /// Groups and pairs.
    parties: Vec<Members>,
    /// The task of each seat of a meeting, one stretch for each meeting.
    tasks: Vec<u32>,
    /// The position of each task, by host, then task.
    places: BTreeMap<u32, Vec<Option<TaskSeat>>>,
}

/// Who adds up all-reduces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Summing {
    /// Hosts, by the job's algorithm.
    Hosts,
    /// Switches, packets of this many bytes of a tensor.
    Switches {
        /// Bytes of a full packet.
        payload: u32,
    },
}

/// A message whose packets are contributions to sums.
#[derive(Clone, Debug)]
pub(crate) struct SumFlow<'m> {
    /// The job: its all-reduces are summed one after the other.
    pub(crate) job: u32,
    /// The seat that sends.
    pub(crate) seat: usize,
    /// Number of the first seat's message; the other seats' follow it.
    pub(crate) first: u32,
    /// Numbers of its packets within the job.
    pub(crate) numbers: Range<u32>,
    /// Hosts by seat.
    pub(crate) hosts: &'m [u32],
}

impl SumFlow<'_> {
    /// The seat whose message comes to a seat.
    pub(crate) const fn before(&self, seat: usize) -> usize {
        (seat + self.hosts.len() - 1) % self.hosts.len()
    }
}

/// More messages than numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TooMany(pub(crate) u64);

#[derive(Debug)]
struct Members {
    /// Hosts by seat.
    hosts: Vec<u32>,
    /// Layers of the model that their messages belong to; 0 when they are not known.
    layer_count: u16,
}

#[derive(Clone, Copy, Debug)]
struct TaskSeat {
    meeting: u32,
    seat: u32,
}

#[derive(Debug)]
struct Meeting {
    /// Number of its first message.
    first: u32,
    shape: u32,
    party: u32,
    /// Where its stretch of tasks begins.
    tasks: u32,
    /// Packets of its party's sums before it.
    summed: u32,
}

#[derive(Debug)]
struct MeetingShape {
    seats: Vec<MeetingSeat>,
    messages: u64,
    /// Packets that switches add up; 0 where hosts do.
    sums: u32,
}

#[derive(Debug)]
struct MeetingSeat {
    /// Messages of the seats before it.
    before: u32,
    outline: CollectiveOutline,
    /// For each message out, the number of the message in at its receiver.
    mates: Vec<u32>,
}

/// A task's messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Itinerary<'m> {
    /// The messages, and which of them wait for which.
    pub(crate) outline: &'m CollectiveOutline,
    /// Number of the first message out.
    pub(crate) first: u32,
    /// Hosts by seat.
    pub(crate) hosts: &'m [u32],
    /// Layers of the model that they belong to; 0 when they are not known.
    pub(crate) layer_count: u16,
}

/// A message, as one of its ends knows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ManifestEntry {
    /// The task that it belongs to.
    pub(crate) task: u32,
    /// Which of the task's messages out or in it is.
    pub(crate) index: u32,
}

/// The parties of a meeting: members of a group, or the two ends of messages with a tag.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Party {
    Group(u32),
    Pair { from: u32, to: u32, tag: u32 },
}

/// The properties that determine a shape.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Key {
    /// `None` for a send and its receive.
    kind: Option<CollectiveKind>,
    seats: u32,
    bytes: ByteCount,
}

impl Manifest {
    /// The messages of a checked workload, planned as the job says, numbered from `first` on.
    ///
    /// # Errors
    /// [`TooMany`] when there are more messages than numbers.
    pub(crate) fn new(
        workload: &Workload,
        job: &Job,
        first: u32,
        summing: Summing,
    ) -> Result<Self, TooMany> {
        let mut job = job.clone();
        if let Some(algorithm) = workload.algorithm {
            job.collectives.algorithm = algorithm;
        }
        let mut loading = Loading {
            summing: match job.collectives.algorithm {
                ReduceAlgorithm::Auto => summing,
                _ => Summing::Hosts,
            },
            outliner: Outliner::new(&job),
            shapes: BTreeMap::new(),
            next: u64::from(first),
            manifest: Self::blank(workload),
        };
        for (party, seats) in parties(workload) {
            loading.take(workload, party, &seats);
        }
        let numbers = loading.next;
        match numbers <= u64::from(u32::MAX) {
            true => Ok(loading.manifest),
            false => Err(TooMany(numbers - u64::from(first))),
        }
    }

    fn blank(workload: &Workload) -> Self {
        let programs = workload.programs.iter();
        let places = programs.map(|program| (program.host, vec![None; program.tasks.len()]));
        Self {
            shapes: Vec::new(),
            meetings: Vec::new(),
            parties: Vec::new(),
            tasks: Vec::new(),
            places: places.collect(),
        }
    }

    /// The messages of a host's task; `None` for one that is not carried.
    pub(crate) fn itinerary(&self, host: u32, task: u32) -> Option<Itinerary<'_>> {
        let place = (*self.places.get(&host)?.get(task as usize)?)?;
        let meeting = &self.meetings[place.meeting as usize];
        let seat = &self.shapes[meeting.shape as usize].seats[place.seat as usize];
        let members = &self.parties[meeting.party as usize];
        Some(Itinerary {
            outline: &seat.outline,
            first: meeting.first + seat.before,
            hosts: &members.hosts,
            layer_count: members.layer_count,
        })
    }

    /// A flow whose packets are contributions.
    pub(crate) fn sum_flow(&self, flow: u32) -> Option<SumFlow<'_>> {
        let first = self.meetings.first()?.first;
        let (meeting, seat, _) = (flow >= first).then(|| self.find(flow))?;
        let sums = self.shapes[meeting.shape as usize].sums;
        (sums > 0).then(|| SumFlow {
            job: meeting.party,
            seat,
            first: meeting.first,
            numbers: meeting.summed..meeting.summed + sums,
            hosts: &self.parties[meeting.party as usize].hosts,
        })
    }

    /// The jobs whose sums switches make, with their hosts by seat.
    pub(crate) fn sum_jobs(&self) -> BTreeMap<u32, &[u32]> {
        let summed = |meeting: &&Meeting| self.shapes[meeting.shape as usize].sums > 0;
        let parties = self.meetings.iter().filter(summed).map(|one| one.party);
        parties
            .map(|party| (party, &self.parties[party as usize].hosts[..]))
            .collect()
    }

    /// A message at its sender.
    pub(crate) fn sent(&self, message: u32) -> ManifestEntry {
        let (meeting, seat, index) = self.find(message);
        let task = self.task(meeting, seat);
        ManifestEntry { task, index }
    }

    /// A message at its receiver.
    pub(crate) fn received(&self, message: u32) -> ManifestEntry {
        let (meeting, seat, index) = self.find(message);
        let sender = &self.shapes[meeting.shape as usize].seats[seat];
        let to = usize::from(sender.outline.sends[index as usize].to);
        ManifestEntry {
            task: self.task(meeting, to),
            index: sender.mates[index as usize],
        }
    }

    /// Whether each message out of a host has a [mirror](Self::mirror), and no message in has two.
    pub(crate) fn is_mirrored(&self, host: u32) -> bool {
        let seats = self.places.get(&host).into_iter().flatten().flatten();
        let shapes = seats.map(|place| {
            let meeting = &self.meetings[place.meeting as usize];
            (meeting.shape as usize, place.seat as usize)
        });
        let different: BTreeSet<(usize, usize)> = shapes.collect();
        different.iter().all(|&(shape, seat)| {
            let seats = &self.shapes[shape].seats;
            let CollectiveOutline {
                sends, receives, ..
            } = &seats[seat].outline;
            let mirrors = (0..sends.len()).map(|index| mirror(seats, seat, index));
            mirrors.flatten().count() == receives.len() && sends.len() == receives.len()
        })
    }

    /// The message that is in to the sender of `message` what that one is out: the one of the same
    /// place that another seat sends to it. `None` if there is not exactly one.
    pub(crate) fn mirror(&self, message: u32) -> Option<u32> {
        let (meeting, seat, index) = self.find(message);
        let seats = &self.shapes[meeting.shape as usize].seats;
        let from = mirror(seats, seat, index as usize)?;
        Some(meeting.first + seats[from].before + index)
    }

    fn task(&self, meeting: &Meeting, seat: usize) -> u32 {
        self.tasks[meeting.tasks as usize + seat]
    }

    /// The meeting of a message, the seat that sends it, and which of its messages out it is.
    fn find(&self, message: u32) -> (&Meeting, usize, u32) {
        let after = (self.meetings).partition_point(|meeting| meeting.first <= message);
        let meeting = &self.meetings[after - 1];
        let within = message - meeting.first;
        let seats = &self.shapes[meeting.shape as usize].seats;
        let seat = seats.partition_point(|seat| seat.before <= within) - 1;
        (meeting, seat, within - seats[seat].before)
    }
}

/// The only seat whose message of a place goes to `seat`.
fn mirror(seats: &[MeetingSeat], seat: usize, index: usize) -> Option<usize> {
    let goes_there = |from: &usize| {
        let send = seats[*from].outline.sends.get(index);
        send.is_some_and(|send| usize::from(send.to) == seat)
    };
    let mut from = (0..seats.len()).filter(goes_there);
    from.next().filter(|_| from.next().is_none())
}

/// A manifest under construction.
struct Loading {
    summing: Summing,
    outliner: Outliner,
    shapes: BTreeMap<Key, u32>,
    next: u64,
    manifest: Manifest,
}

impl Loading {
    /// Adds all meetings of a party, whose tasks are given by seat.
    fn take(&mut self, workload: &Workload, party: Party, seats: &[Vec<u32>]) {
        let (hosts, layer_count) = match party {
            Party::Group(group) => {
                let hosts = workload.groups[group as usize].clone();
                (hosts, workload.layers_of(group))
            }
            Party::Pair { from, to, .. } => (vec![from, to], 0),
        };
        let number = self.manifest.parties.len() as u32;
        let known = seats.iter().position(|own| !own.is_empty());
        let known = known.expect("a party is one of a task");
        let mut programs = workload.programs.iter();
        let tasks = programs.find(|program| program.host == hosts[known]);
        let tasks = tasks.map_or(&[][..], |program| &program.tasks);
        let mut summed = 0;
        for (turn, &first) in seats[known].iter().enumerate() {
            let work = &tasks[first as usize].work;
            let shape = self.shape(work, hosts.len() as u32);
            let meeting = self.manifest.meetings.len() as u32;
            let stretch = self.manifest.tasks.len() as u32;
            for (seat, (own, host)) in (0..).zip(seats.iter().zip(&hosts)) {
                let task = own.get(turn).copied().unwrap_or(first);
                self.manifest.tasks.push(task);
                if let Some(places) = self.manifest.places.get_mut(host) {
                    places[task as usize] = Some(TaskSeat { meeting, seat });
                }
            }
            self.manifest.meetings.push(Meeting {
                // Such a manifest is refused, so no number beyond the last is ever looked up.
                first: self.next as u32,
                shape,
                party: number,
                tasks: stretch,
                summed,
            });
            summed += self.manifest.shapes[shape as usize].sums;
            self.next += self.manifest.shapes[shape as usize].messages;
        }
        self.manifest.parties.push(Members { hosts, layer_count });
    }

    fn shape(&mut self, work: &Work, seats: u32) -> u32 {
        let (kind, bytes) = match *work {
            Work::Collective { kind, bytes, .. } => (Some(kind), bytes),
            Work::Send { bytes, .. } | Work::Receive { bytes, .. } => (None, bytes),
            Work::Compute { .. } => unreachable!("a computation has no messages"),
        };
        let key = Key { kind, seats, bytes };
        if let Some(&known) = self.shapes.get(&key) {
            return known;
        }
        let number = self.manifest.shapes.len() as u32;
        let sums = self.sums(key);
        let outlines = (0..seats).map(|seat| match sums {
            0 => self.outline(key, seat),
            _ => to_the_next(key, seat),
        });
        let shape = MeetingShape {
            sums,
            ..shape_of(outlines.collect())
        };
        self.manifest.shapes.push(shape);
        self.shapes.insert(key, number);
        number
    }

    /// Packets of a meeting that switches add up.
    fn sums(&self, key: Key) -> u32 {
        let seats = key.seats as usize;
        match (self.summing, key.kind) {
            (Summing::Switches { payload }, Some(CollectiveKind::AllReduce))
                if (2..=MEMBERS_MAX).contains(&seats) && key.bytes.get() <= MESSAGE_BYTES_MAX =>
            {
                key.bytes.get().div_ceil(u64::from(payload)) as u32
            }
            _ => 0,
        }
    }

    fn outline(&self, key: Key, seat: u32) -> CollectiveOutline {
        let group = Group {
            id: 0,
            ranks: (0..key.seats as u16).map(Rank).collect(),
        };
        let tag = 0;
        let operation = match (key.kind, seat) {
            (Some(kind), _) => operations::collective(kind, group, key.bytes),
            (None, 0) => {
                let to = Rank(1);
                operations::message(group, Collective::Send { to, tag }, key.bytes)
            }
            (None, _) => {
                let from = Rank(0);
                operations::message(group, Collective::Receive { from, tag }, key.bytes)
            }
        };
        let outline = self.outliner.outline(&operation, seat as usize);
        outline.expect("a checked workload has valid operations")
    }
}

/// One message to the next seat, and one from the seat before.
fn to_the_next(key: Key, seat: u32) -> CollectiveOutline {
    let bytes = key.bytes.get() as u32;
    let (part, seats) = (0, key.seats);
    CollectiveOutline {
        sends: vec![OutlineSend {
            to: ((seat + 1) % seats) as u16,
            part,
            bytes,
            offset: 0,
        }],
        receives: vec![OutlineReceive {
            from: ((seat + seats - 1) % seats) as u16,
            part,
            bytes,
            gate: 1,
        }],
        gates: vec![
            OutlineGate {
                waits: 0,
                sends: 0..1,
                next: 0..0,
            },
            OutlineGate {
                waits: 1,
                sends: 1..1,
                next: 0..0,
            },
        ],
        ..CollectiveOutline::default()
    }
}

/// The tasks of all parties, by seat, in the order of their programs.
fn parties(workload: &Workload) -> BTreeMap<Party, Vec<Vec<u32>>> {
    let mut parties: BTreeMap<Party, Vec<Vec<u32>>> = BTreeMap::new();
    for program in &workload.programs {
        let mut seats: BTreeMap<u32, usize> = BTreeMap::new();
        for (number, task) in (0..).zip(&program.tasks) {
            let (party, seat, world) = match task.work {
                Work::Compute { .. } => continue,
                Work::Collective { group, .. } => {
                    let members = &workload.groups[group as usize];
                    let seat = *seats.entry(group).or_insert_with(|| {
                        let seat = members.iter().position(|&host| host == program.host);
                        seat.expect("checked: the host is in the group")
                    });
                    (Party::Group(group), seat, members.len())
                }
                Work::Send { to, tag, .. } => {
                    let from = program.host;
                    (Party::Pair { from, to, tag }, 0, 2)
                }
                Work::Receive { from, tag, .. } => {
                    let to = program.host;
                    (Party::Pair { from, to, tag }, 1, 2)
                }
            };
            let tasks = parties.entry(party);
            tasks.or_insert_with(|| vec![Vec::new(); world])[seat].push(number);
        }
    }
    parties
}

fn shape_of(outlines: Vec<CollectiveOutline>) -> MeetingShape {
    let mut mates = Vec::with_capacity(outlines.len());
    for (seat, outline) in (0..).zip(&outlines) {
        let mate = |send: &OutlineSend| {
            let mate = outlines[usize::from(send.to)].receive(seat, send.part);
            mate.expect("every message out is a message in") as u32
        };
        mates.push(outline.sends.iter().map(mate).collect::<Vec<u32>>());
    }
    let mut before: u64 = 0;
    let seats = outlines.into_iter().zip(mates).map(|(outline, mates)| {
        let seat = MeetingSeat {
            before: before as u32,
            outline,
            mates,
        };
        before += seat.mates.len() as u64;
        seat
    });
    MeetingShape {
        seats: seats.collect(),
        messages: before,
        sums: 0,
    }
}
