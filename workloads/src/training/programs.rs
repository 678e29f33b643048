//! The programs of workers, of servers, and of the centre of a gossip.

use gradwire_protocol::units::ByteCount;

use super::exchange::{
    CodecTime, CodecUnit, GradientExchange, Overlap, StepPart, Training, Update,
};
use super::messages::{GradientMessage, messages};
use super::roster::Roster;
use super::tasks::{COMPUTE, ProgramTasks};
use super::workers::{TrainingPrograms, WorkerSteps};
use crate::workload::{CollectiveKind, Task, Work, Workload};

/// A server is the first member of its group with a worker, a leader that of its team.
const FIRST: u32 = 0;
/// The unit of the cores that encode and decode, where they are not that which computes.
const CODEC_CORES: u16 = COMPUTE + 1;

/// Makes the workload of steps whose model is scaled already, on enough hosts.
pub(super) fn workload(training: &Training, hosts: u32) -> Workload {
    let messages = messages(training);
    let roster = Roster::new(training, hosts);
    let mut programs = TrainingPrograms::new(training);
    for host in 0..roster.servers {
        let own: Vec<&GradientMessage> = messages.iter().filter(|one| one.server == host).collect();
        let tasks = match training.exchange {
            GradientExchange::Servers(_) => serve(training, &own, (&roster, host)),
            _ => keep_centre(training, &own, &roster),
        };
        programs.add_server(host, tasks);
    }
    for (number, &host) in (0..).zip(&roster.workers) {
        let steps = Steps {
            training,
            messages: &messages,
            roster: &roster,
            number,
            tasks: programs.tasks(number, roster.workers.len() as u32),
            updates: vec![Vec::new(); training.model.layers.len()],
            exchanged: vec![Vec::new(); messages.len()],
        };
        programs.add_worker(host, steps);
    }
    programs.workload(roster.groups)
}

/// Makes the program of a server: every leader pushes a message, and pulls the new values when the
/// others are as far as the staleness demands. The server awaits a push from the moment at which
/// the leader pulls the values of the step before.
fn serve(
    training: &Training,
    own: &[&GradientMessage],
    (roster, server): (&Roster, u32),
) -> Vec<Task> {
    let leaders: Vec<u32> = roster.leaders().collect();
    let count = leaders.len() as u32;
    let step_tasks = own.len() as u32 * 2 * count;
    let group = |leader: u32| roster.with_server(server, leader);
    let mut tasks: Vec<Task> = Vec::new();
    for step in 0..training.steps {
        for message in own {
            let first = tasks.len() as u32;
            for (number, &leader) in (0..).zip(&leaders) {
                let mut push = exchange(message, StepPart::Push, group(leader), Vec::new());
                if step > 0 {
                    let pulled = first + count + number - step_tasks;
                    push.after_start.push(pulled);
                }
                tasks.push(Task { step, ..push });
            }
            let awaited = training.staleness.awaited(step);
            let awaited = awaited.map(|awaited| first - (step - awaited) * step_tasks);
            for (number, &leader) in (0..).zip(&leaders) {
                let mut pushes: Vec<u32> = match awaited {
                    Some(awaited) => (awaited..awaited + count).collect(),
                    None => Vec::new(),
                };
                if !pushes.contains(&(first + number)) {
                    pushes.push(first + number);
                }
                let pull = exchange(message, StepPart::Pull, group(leader), pushes);
                tasks.push(Task { step, ..pull });
            }
        }
    }
    tasks
}

/// Makes the program of the centre: it averages each message with every leader, and begins a step
/// with a leader when the others are as far as the staleness demands.
fn keep_centre(training: &Training, own: &[&GradientMessage], roster: &Roster) -> Vec<Task> {
    let leaders: Vec<u32> = roster.leaders().collect();
    let count = leaders.len() as u32;
    let step_tasks = own.len() as u32 * count;
    let mut tasks: Vec<Task> = Vec::new();
    for step in 0..training.steps {
        for message in own {
            let first = tasks.len() as u32;
            for (number, &leader) in (0..).zip(&leaders) {
                let mut before = Vec::new();
                if let Some(last) = step.checked_sub(1) {
                    if let Some(awaited) = training.staleness.awaited(last) {
                        let awaited = first - (step - awaited) * step_tasks;
                        before.extend(awaited..awaited + count);
                    }
                    let last = first + number - step_tasks;
                    if !before.contains(&last) {
                        before.push(last);
                    }
                }
                let group = roster.with_server(FIRST, leader);
                let average = exchange(message, StepPart::Average, group, before);
                tasks.push(Task { step, ..average });
            }
        }
    }
    tasks
}

fn exchange(message: &GradientMessage, part: StepPart, group: u32, after: Vec<u32>) -> Task {
    let root = FIRST;
    let kind = match part {
        StepPart::Push | StepPart::Collect => CollectiveKind::Reduce { root },
        StepPart::Pull | StepPart::Spread => CollectiveKind::Broadcast { root },
        _ => CollectiveKind::AllReduce,
    };
    let work = Work::Collective {
        kind,
        group,
        bytes: ByteCount::new(message.bytes),
        layers: message.layers.clone(),
    };
    Task::new(format!("{part} {}", message.name), work, after)
}

/// The program of a worker so far.
struct Steps<'a> {
    training: &'a Training,
    messages: &'a [GradientMessage],
    roster: &'a Roster,
    /// Its number among the workers.
    number: u32,
    tasks: ProgramTasks,
    /// By layer, the tasks that bring the update that its next forward pass waits for.
    updates: Vec<Vec<u32>>,
    /// By message, the task that ended the exchange of each step.
    exchanged: Vec<Vec<u32>>,
}

impl WorkerSteps for Steps<'_> {
    fn tasks(&mut self) -> &mut ProgramTasks {
        &mut self.tasks
    }

    fn forward(&mut self, step: u32) -> u32 {
        let updates = std::mem::take(&mut self.updates);
        self.updates = vec![Vec::new(); updates.len()];
        let mut all: Vec<u32> = updates.concat();
        all.sort_unstable();
        all.dedup();
        let mut last = 0;
        for (number, layer) in self.training.model.layers.iter().enumerate() {
            let awaited = match self.training.update {
                Update::Layer => updates[number].clone(),
                Update::All if number == 0 => std::mem::take(&mut all),
                Update::All => Vec::new(),
            };
            let name = format!("{} {}", StepPart::Forward, layer.name);
            last = self.tasks.compute(name, layer.forward, awaited, step);
        }
        last
    }

    fn backward(&mut self, step: u32) {
        let mut messages = (0..).zip(self.messages).peekable();
        let gradients = self.training.model.gradients.len() as u32;
        for (number, one) in (0..).zip(&self.training.model.gradients) {
            let name = format!("{} {}", StepPart::Backward, one.name);
            let made = self.tasks.compute(name, one.backward, Vec::new(), step);
            let is_ready = |message: &GradientMessage| match self.training.overlap {
                Overlap::Backward => message.last == number,
                Overlap::Off => number + 1 == gradients,
            };
            while let Some((place, message)) = messages.next_if(|(_, message)| is_ready(message)) {
                for updated in self.exchange(place, made, step) {
                    self.add_update(message, updated);
                }
            }
        }
    }
}

impl Steps<'_> {
    fn add_update(&mut self, message: &GradientMessage, updated: u32) {
        for (_, layer) in &message.layers {
            let updates = &mut self.updates[usize::from(layer.0)];
            if updates.last() != Some(&updated) {
                updates.push(updated);
            }
        }
    }

    /// Exchanges a message; returns the tasks that the next forward pass waits for.
    fn exchange(&mut self, place: usize, made: u32, step: u32) -> Vec<u32> {
        let message = &self.messages[place];
        let Some(team) = self.roster.team(self.number) else {
            return self.exchange_between(place, made, step);
        };
        let collected = exchange(message, StepPart::Collect, team, vec![made]);
        let collected = self.tasks.add(collected, step);
        if self.roster.leader(self.number).is_none() {
            let mut spread = exchange(message, StepPart::Spread, team, Vec::new());
            spread.after_start.push(collected);
            return vec![self.tasks.add(spread, step)];
        }
        let mut before = self.exchange_between(place, collected, step);
        if !before.contains(&collected) {
            before.push(collected);
        }
        let spread = exchange(message, StepPart::Spread, team, before.clone());
        self.tasks.add(spread, step);
        before
    }

    /// Exchanges a message of a leader; returns the tasks that its team's next forward pass waits
    /// for.
    fn exchange_between(&mut self, place: usize, made: u32, step: u32) -> Vec<u32> {
        let message = &self.messages[place];
        let leader = self.roster.leader(self.number);
        let leader = leader.expect("only leaders exchange with others");
        if let GradientExchange::Servers(_) = self.training.exchange {
            let host = self.roster.workers[self.number as usize];
            let group = self.roster.with_server(message.server, host);
            let push = exchange(message, StepPart::Push, group, vec![made]);
            let pushed = self.tasks.add(push, step);
            let mut pull = exchange(message, StepPart::Pull, group, Vec::new());
            pull.after_start.push(pushed);
            return vec![self.tasks.add(pull, step)];
        }
        let part = match self.training.exchange {
            GradientExchange::Gossip(_) => StepPart::Average,
            _ => StepPart::AllReduce,
        };
        // Where a forward pass waits for all before it, no exchange can overtake the last one.
        if let Some(codec) = self.training.codec {
            return self.exchange_encoded(codec, place, made, step);
        }
        let staleness = self.training.staleness;
        let last = self.exchanged[place].last().copied();
        let last = last.filter(|_| staleness.awaited(step) != Some(step));
        let after = [made].into_iter().chain(last).collect();
        let group = self.roster.exchange(leader, step);
        let task = self.tasks.add(exchange(message, part, group, after), step);
        self.exchanged[place].push(task);
        let awaited = staleness.awaited(step);
        let awaited = awaited.map(|awaited| self.exchanged[place][awaited as usize]);
        awaited.into_iter().collect()
    }

    /// Exchanges a message among all workers by a codec that takes time; returns the tasks that the
    /// next forward pass waits for.
    fn exchange_encoded(
        &mut self,
        codec: CodecTime,
        place: usize,
        made: u32,
        step: u32,
    ) -> Vec<u32> {
        let message = &self.messages[place];
        let once = codec.rate.transmit_time(ByteCount::new(message.bytes));
        let group = self.roster.exchange(FIRST, step);
        let coding = |word: &str, span, unit, after| {
            let work = Work::Compute { span, unit };
            Task::new(format!("{word} {}", message.name), work, vec![after])
        };
        let sum = |after| exchange(message, StepPart::AllReduce, group, vec![after]);
        match codec.unit {
            CodecUnit::Cores => {
                let coded = coding("code", once + once, CODEC_CORES, made);
                let coded = self.tasks.add(coded, step);
                vec![self.tasks.add(sum(made), step), coded]
            }
            CodecUnit::Compute => {
                let encoded = coding("encode", once, COMPUTE, made);
                let encoded = self.tasks.add(encoded, step);
                let summed = self.tasks.add(sum(encoded), step);
                let decoded = coding("decode", once, COMPUTE, summed);
                vec![self.tasks.add(decoded, step)]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use crate::training::{BUCKET_BYTES, Partners, Parts, Staleness};

    const STALENESS: [Staleness; 3] = [
        Staleness::Steps(0),
        Staleness::Steps(2),
        Staleness::Unbounded,
    ];

    fn training(exchange: GradientExchange, staleness: Staleness, team: u32) -> Training {
        Training {
            model: Model::named("alexnet").expect("it is one of the names"),
            exchange,
            parts: Parts::Whole,
            update: Update::Layer,
            bucket: BUCKET_BYTES,
            overlap: Overlap::Backward,
            beside: None,
            staleness,
            team,
            steps: 5,
            straggling: 1.0,
            algorithm: None,
            codec: None,
            scale: 1,
        }
    }

    #[test]
    fn every_way_to_train_comes_to_its_end() {
        for staleness in STALENESS {
            for (exchange, hosts) in [
                (GradientExchange::Buckets, 6),
                (GradientExchange::Tensors, 6),
                (GradientExchange::Servers(2), 8),
                (GradientExchange::Gossip(Partners::Ring), 12),
                (GradientExchange::Gossip(Partners::HalvingDoubling), 8),
                (GradientExchange::Gossip(Partners::Centre), 7),
            ] {
                for team in [1, 2] {
                    let training = training(exchange.clone(), staleness, team);
                    let workload = training.workload(hosts);
                    let checked = workload.check(hosts);
                    assert!(
                        checked.is_ok(),
                        "{exchange:?} {staleness:?} {team}: {checked:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn pulls_wait_for_all_pushes_of_the_awaited_step() {
        for staleness in STALENESS {
            let training = training(GradientExchange::Servers(1), staleness, 1);
            let workload = training.workload(4);
            let tasks = &workload.programs[0].tasks;
            let pulls = tasks
                .iter()
                .filter(|one| StepPart::of(one) == Some(StepPart::Pull));
            for pull in pulls {
                let steps = pull.after.iter().map(|&push| tasks[push as usize].step);
                let steps: Vec<u32> = steps.collect();
                let of = |step: u32| steps.iter().filter(|one| **one == step).count();
                let awaited = staleness.awaited(pull.step);
                if let Some(awaited) = awaited {
                    assert_eq!(of(awaited), 3, "{staleness:?} {steps:?}");
                }
                assert!(of(pull.step) >= 1, "its own push");
                let others = steps
                    .iter()
                    .filter(|one| ![Some(pull.step), awaited].contains(&Some(**one)));
                assert_eq!(others.count(), 0, "{staleness:?} {steps:?}");
            }
        }
    }
}
