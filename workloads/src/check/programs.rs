//! Checks that programs agree with each other and can end.

use std::collections::{BTreeMap, BTreeSet};

use super::{WorkloadError, check_host};
use gradwire_protocol::units::ByteCount;

use crate::order::TaskWaits;
use crate::workload::{CollectiveKind, Program, Task, Work, Workload};

/// Checks the programs of a workload whose groups are right.
pub(super) fn check(workload: &Workload, hosts: u32) -> Result<(), WorkloadError> {
    let mut known = BTreeSet::new();
    for program in &workload.programs {
        let host = program.host;
        check_host(|| format!("the program of host {host}"), host, hosts)?;
        if !known.insert(host) {
            return Err(WorkloadError::TwoPrograms { host });
        }
        for number in 0..program.tasks.len() {
            let task = TaskPlace { program, number };
            task.check_order()?;
            task.check_work(workload, hosts)?;
        }
    }
    let meetings = Meetings::new(workload)?;
    meetings.check_that_all_end(workload)
}

/// A task and its place.
#[derive(Clone, Copy)]
struct TaskPlace<'a> {
    program: &'a Program,
    number: usize,
}

impl TaskPlace<'_> {
    fn task(&self) -> &Task {
        &self.program.tasks[self.number]
    }

    fn name(&self) -> String {
        let (number, host) = (self.number, self.program.host);
        match self.task().name.as_str() {
            "" => format!("task {number} of host {host}"),
            name => format!("task {number} (`{name}`) of host {host}"),
        }
    }

    fn check_order(&self) -> Result<(), WorkloadError> {
        let mut before = self.task().after.iter().chain(&self.task().after_start);
        let wrong = before.find(|&&before| before as usize >= self.number);
        wrong.map_or(Ok(()), |&before| {
            let what = self.name();
            Err(WorkloadError::Order { what, before })
        })
    }

    fn check_work(&self, workload: &Workload, hosts: u32) -> Result<(), WorkloadError> {
        match self.task().work {
            Work::Compute { .. } => Ok(()),
            Work::Send { to, bytes, .. } => self.check_peer(to, bytes.get(), hosts),
            Work::Receive { from, bytes, .. } => self.check_peer(from, bytes.get(), hosts),
            Work::Collective {
                kind, group, bytes, ..
            } => {
                if bytes.get() == 0 && kind != CollectiveKind::Barrier {
                    return Err(WorkloadError::Nothing { what: self.name() });
                }
                self.check_membership(kind, group, workload)
            }
        }
    }

    fn check_peer(&self, peer: u32, bytes: u64, hosts: u32) -> Result<(), WorkloadError> {
        check_host(|| self.name(), peer, hosts)?;
        if peer == self.program.host {
            let what = self.name();
            return Err(WorkloadError::ToItself { what, host: peer });
        }
        if bytes == 0 {
            return Err(WorkloadError::Nothing { what: self.name() });
        }
        Ok(())
    }

    fn check_membership(
        &self,
        kind: CollectiveKind,
        group: u32,
        workload: &Workload,
    ) -> Result<(), WorkloadError> {
        let Some(members) = workload.groups.get(group as usize) else {
            return Err(WorkloadError::NoSuchGroup {
                what: self.name(),
                group,
                groups: workload.groups.len(),
            });
        };
        let host = self.program.host;
        let missing = match kind {
            _ if !members.contains(&host) => format!("host {host}"),
            CollectiveKind::Broadcast { root } | CollectiveKind::Reduce { root }
                if root as usize >= members.len() =>
            {
                format!("number {root}")
            }
            _ => return Ok(()),
        };
        Err(WorkloadError::NotInGroup {
            what: self.name(),
            member: missing,
            group,
            size: members.len(),
        })
    }
}

/// A meeting of tasks of several hosts.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Meeting {
    /// The n-th collective of a group.
    Collective { group: u32, number: u32 },
    /// The n-th message of a pair and tag.
    Message {
        from: u32,
        to: u32,
        tag: u32,
        number: u32,
    },
}

/// A task of all programs: index of the program, index in it.
type Index = (usize, usize);

/// The tasks that meet.
struct Meetings {
    /// The participants, by program and task.
    members: BTreeMap<Meeting, Vec<Index>>,
    /// The meeting of every task that has one, by program.
    of: Vec<Vec<Option<Meeting>>>,
}

impl Meetings {
    fn new(workload: &Workload) -> Result<Self, WorkloadError> {
        let mut members: BTreeMap<Meeting, Vec<Index>> = BTreeMap::new();
        let mut of = Vec::with_capacity(workload.programs.len());
        for (index, program) in workload.programs.iter().enumerate() {
            let mut numbers = BTreeMap::new();
            let meetings: Vec<Option<Meeting>> = program
                .tasks
                .iter()
                .map(|task| meeting_of(program.host, &task.work, &mut numbers))
                .collect();
            for (number, meeting) in meetings.iter().enumerate() {
                if let Some(meeting) = meeting {
                    members.entry(*meeting).or_default().push((index, number));
                }
            }
            of.push(meetings);
        }
        let all = Self { members, of };
        for (meeting, members) in &all.members {
            check_meeting(workload, *meeting, members)?;
        }
        Ok(all)
    }

    /// Completes every task that can complete, in zero time.
    fn check_that_all_end(&self, workload: &Workload) -> Result<(), WorkloadError> {
        let mut run = DryRun::new(workload);
        while let Some(index) = run.ready.pop() {
            run.start(workload, index);
            match self.of[index.0][index.1] {
                None => run.end(index),
                Some(meeting) => {
                    let members = &self.members[&meeting];
                    let arrived = run.arrived.entry(meeting).or_insert(0);
                    *arrived += 1;
                    if *arrived == members.len() {
                        members.iter().for_each(|&member| run.end(member));
                    }
                }
            }
        }
        let stuck = run.ended.iter().flatten().filter(|ended| !**ended).count();
        let programs = workload.programs.iter().zip(&run.ended);
        let mut first = programs.filter_map(|(program, ended)| {
            let number = ended.iter().position(|ended| !ended)?;
            Some(TaskPlace { program, number }.name())
        });
        first
            .next()
            .map_or(Ok(()), |what| Err(WorkloadError::Stuck { what, stuck }))
    }
}

/// The progress of all programs.
struct DryRun {
    /// Tasks that are ready and have not started.
    ready: Vec<Index>,
    waits: Vec<TaskWaits>,
    ended: Vec<Vec<bool>>,
    arrived: BTreeMap<Meeting, usize>,
}

impl DryRun {
    fn new(workload: &Workload) -> Self {
        let programs = workload.programs.iter();
        let waits = programs
            .clone()
            .map(|program| TaskWaits::new(&program.tasks));
        let waits: Vec<TaskWaits> = waits.collect();
        let free = |(program, waits): (usize, &TaskWaits)| {
            let free: Vec<u32> = waits.free().collect();
            free.into_iter().map(move |task| (program, task as usize))
        };
        Self {
            ready: waits.iter().enumerate().flat_map(free).collect(),
            ended: programs.map(|one| vec![false; one.tasks.len()]).collect(),
            arrived: BTreeMap::new(),
            waits,
        }
    }

    /// A send ends when it is handed over, whether or not its receive has begun.
    fn start(&mut self, workload: &Workload, (program, task): Index) {
        let ready = self.waits[program].start(task as u32);
        self.release(program, ready);
        let work = &workload.programs[program].tasks[task].work;
        if matches!(work, Work::Send { .. }) {
            self.end((program, task));
        }
    }

    fn end(&mut self, (program, task): Index) {
        self.ended[program][task] = true;
        let ready = self.waits[program].end(task as u32);
        self.release(program, ready);
    }

    fn release(&mut self, program: usize, ready: Vec<u32>) {
        let ready = ready.into_iter().map(|task| (program, task as usize));
        self.ready.extend(ready);
    }
}

fn meeting_of(host: u32, work: &Work, numbers: &mut BTreeMap<Meeting, u32>) -> Option<Meeting> {
    let mut next = |first: Meeting| {
        let number = numbers.entry(first).or_insert(0);
        *number += 1;
        *number - 1
    };
    let message = |from, to, tag, number| Meeting::Message {
        from,
        to,
        tag,
        number,
    };
    match *work {
        Work::Compute { .. } => None,
        Work::Collective { group, .. } => {
            let number = next(Meeting::Collective { group, number: 0 });
            Some(Meeting::Collective { group, number })
        }
        Work::Send { to, tag, .. } => Some(message(host, to, tag, next(message(host, to, tag, 0)))),
        Work::Receive { from, tag, .. } => {
            Some(message(from, host, tag, next(message(from, host, tag, 0))))
        }
    }
}

fn check_meeting(
    workload: &Workload,
    meeting: Meeting,
    members: &[Index],
) -> Result<(), WorkloadError> {
    let places: Vec<TaskPlace<'_>> = members
        .iter()
        .map(|&(program, number)| TaskPlace {
            program: &workload.programs[program],
            number,
        })
        .collect();
    match meeting {
        Meeting::Message { from, to, tag, .. } => check_message(&places, [from, to], tag),
        Meeting::Collective { group, number } => {
            let hosts = &workload.groups[group as usize];
            check_collective(&places, hosts).map_err(|(differs, other, expected)| {
                WorkloadError::Differ {
                    what: differs.name(),
                    group,
                    number: number as usize,
                    given: differs.collective_text(),
                    other,
                    expected,
                }
            })
        }
    }
}

fn check_message(places: &[TaskPlace<'_>], ends: [u32; 2], tag: u32) -> Result<(), WorkloadError> {
    if let [one, other] = places
        && one.message_bytes() == other.message_bytes()
    {
        return Ok(());
    }
    let first = places[0];
    let (wanted, peer) = match first.task().work {
        Work::Send { .. } => ("receive", ends[1]),
        _ => ("send", ends[0]),
    };
    Err(WorkloadError::Unmatched {
        what: first.name(),
        wanted,
        tag,
        peer,
    })
}

/// A task that differs from another host's, that host, and its task in words.
type Difference<'a> = (TaskPlace<'a>, u32, String);

fn check_collective<'a>(places: &[TaskPlace<'a>], hosts: &[u32]) -> Result<(), Difference<'a>> {
    let first = places[0];
    let differs = places.iter().find(|other| !other.does_the_same(&first));
    if let Some(differs) = differs {
        return Err((*differs, first.program.host, first.collective_text()));
    }
    if places.len() == hosts.len() {
        return Ok(());
    }
    let here: BTreeSet<u32> = places.iter().map(|place| place.program.host).collect();
    let absent = hosts.iter().find(|host| !here.contains(host));
    absent.map_or(Ok(()), |&host| Err((first, host, "missing".to_owned())))
}

impl TaskPlace<'_> {
    fn message_bytes(&self) -> u64 {
        match self.task().work {
            Work::Send { bytes, .. } | Work::Receive { bytes, .. } => bytes.get(),
            Work::Compute { .. } | Work::Collective { .. } => 0,
        }
    }

    fn collective(&self) -> Option<(CollectiveKind, ByteCount)> {
        match self.task().work {
            Work::Collective { kind, bytes, .. } => Some((kind, bytes)),
            _ => None,
        }
    }

    fn does_the_same(&self, other: &TaskPlace<'_>) -> bool {
        self.collective() == other.collective()
    }

    fn collective_text(&self) -> String {
        self.collective()
            .map_or_else(String::new, |(kind, bytes)| format!("{kind} of {bytes}"))
    }
}
