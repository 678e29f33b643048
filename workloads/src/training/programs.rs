//! The programs of workers and servers.

use gradwire_protocol::units::{ByteCount, Span};

use super::exchange::{GradientExchange, Overlap, Training, Update};
use super::messages::{GradientMessage, messages};
use super::step_ends::{StepEnds, Worker};
use super::tasks::ProgramTasks;
use crate::workload::{CollectiveKind, Program, Task, Work, Workload};

/// A server is the first member of its group with a worker.
const SERVER: u32 = 0;

/// Makes the workload of steps whose model is scaled already, on enough hosts.
pub(super) fn workload(training: &Training, hosts: u32) -> Workload {
    let messages = messages(training);
    let servers = match training.exchange {
        GradientExchange::Servers(servers) => servers,
        _ => 0,
    };
    let workers: Vec<u32> = (servers..hosts).collect();
    let (mut programs, mut ends) = (Vec::new(), Vec::new());
    for host in 0..servers {
        let own: Vec<&GradientMessage> = messages.iter().filter(|one| one.server == host).collect();
        let tasks = serve(&own, training.steps, workers.len() as u32);
        programs.push(Program { host, tasks });
    }
    for (number, &host) in (0..).zip(&workers) {
        let seat = WorkerSeat {
            number,
            workers: workers.len() as u32,
        };
        let mut work = Steps::new(training, &messages, seat);
        let forward_ends = work.all();
        ends.push(Worker {
            host,
            compute: work.tasks.took.divided(u64::from(training.steps)),
            forward_ends,
        });
        let tasks = work.tasks.list;
        programs.push(Program { host, tasks });
    }
    let layers = training.model.layers.iter();
    let pairs = |server: u32| workers.iter().map(move |&worker| vec![server, worker]);
    let groups: Vec<Vec<u32>> = match servers {
        0 => vec![workers],
        _ => (0..servers).flat_map(pairs).collect(),
    };
    Workload {
        programs,
        layer_count: training.model.layers.len() as u16,
        algorithm: training.algorithm,
        step_ends: vec![StepEnds {
            name: training.model.name.clone(),
            groups: 0..groups.len() as u32,
            steps: training.steps,
            layers: layers.map(|layer| layer.name.clone()).collect(),
            workers: ends,
        }],
        groups,
        ..Workload::default()
    }
}

/// The number of a worker, from 0, and the number of all workers.
#[derive(Clone, Copy)]
struct WorkerSeat {
    number: u32,
    workers: u32,
}

impl WorkerSeat {
    /// Returns this worker's group with a server.
    fn group(self, server: u32) -> u32 {
        server * self.workers + self.number
    }
}

/// Makes the program of a server: every worker pushes a message, and when all have, each pulls the
/// sum. The server awaits a push from the moment at which the worker pulls the sum of the step
/// before.
fn serve(own: &[&GradientMessage], steps: u32, workers: u32) -> Vec<Task> {
    let step_tasks = own.len() as u32 * 2 * workers;
    let mut tasks: Vec<Task> = Vec::new();
    for step in 0..steps {
        for message in own {
            let first = tasks.len() as u32;
            let seats = (0..workers).map(|number| WorkerSeat { number, workers });
            for seat in seats.clone() {
                let mut push = exchange(message, Direction::Push(seat), Vec::new());
                if step > 0 {
                    let pulled = first + workers + seat.number - step_tasks;
                    push.after_start.push(pulled);
                }
                tasks.push(Task { step, ..push });
            }
            let pushes: Vec<u32> = (first..first + workers).collect();
            for seat in seats {
                let pull = exchange(message, Direction::Pull(seat), pushes.clone());
                tasks.push(Task { step, ..pull });
            }
        }
    }
    tasks
}

/// The exchange of a message.
#[derive(Clone, Copy)]
enum Direction {
    AllReduce,
    Push(WorkerSeat),
    Pull(WorkerSeat),
}

fn exchange(message: &GradientMessage, direction: Direction, after: Vec<u32>) -> Task {
    let root = SERVER;
    let (word, kind, group) = match direction {
        Direction::AllReduce => ("all-reduce", CollectiveKind::AllReduce, 0),
        Direction::Push(seat) => {
            let group = seat.group(message.server);
            ("push", CollectiveKind::Reduce { root }, group)
        }
        Direction::Pull(seat) => {
            let group = seat.group(message.server);
            ("pull", CollectiveKind::Broadcast { root }, group)
        }
    };
    let work = Work::Collective {
        kind,
        group,
        bytes: ByteCount::new(message.bytes),
        layers: message.layers.clone(),
    };
    Task::new(format!("{word} {}", message.name), work, after)
}

/// The program of a worker so far.
struct Steps<'a> {
    training: &'a Training,
    messages: &'a [GradientMessage],
    seat: WorkerSeat,
    tasks: ProgramTasks,
    /// By layer, the tasks that bring its update.
    updates: Vec<Vec<u32>>,
}

impl<'a> Steps<'a> {
    fn new(training: &'a Training, messages: &'a [GradientMessage], seat: WorkerSeat) -> Self {
        let slow = match seat.number + 1 == seat.workers {
            true => training.straggling,
            false => 1.0,
        };
        Self {
            training,
            messages,
            seat,
            tasks: ProgramTasks::new(slow),
            updates: vec![Vec::new(); training.model.layers.len()],
        }
    }

    /// Writes all steps; returns the last task of each forward pass.
    fn all(&mut self) -> Vec<u32> {
        let mut ends = vec![self.forward(0)];
        self.tasks.took = Span::ZERO;
        for step in 0..self.training.steps {
            self.backward(step);
            ends.push(self.forward(step + 1));
        }
        ends
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
            let name = format!("forward {}", layer.name);
            last = self.tasks.compute(name, layer.forward, awaited, step);
        }
        last
    }

    fn backward(&mut self, step: u32) {
        let mut messages = self.messages.iter().peekable();
        let gradients = self.training.model.gradients.len() as u32;
        for (number, one) in (0..).zip(&self.training.model.gradients) {
            let name = format!("backward {}", one.name);
            let made = self.tasks.compute(name, one.backward, Vec::new(), step);
            let is_ready = |message: &GradientMessage| match self.training.overlap {
                Overlap::Backward => message.last == number,
                Overlap::Off => number + 1 == gradients,
            };
            while let Some(message) = messages.next_if(|message| is_ready(message)) {
                self.exchange(message, made, step);
            }
        }
    }

    fn exchange(&mut self, message: &GradientMessage, made: u32, step: u32) {
        let updated = match self.training.exchange {
            GradientExchange::Servers(_) => {
                let pushed = self.tasks.add(
                    exchange(message, Direction::Push(self.seat), vec![made]),
                    step,
                );
                let mut pull = exchange(message, Direction::Pull(self.seat), Vec::new());
                pull.after_start.push(pushed);
                self.tasks.add(pull, step)
            }
            _ => self
                .tasks
                .add(exchange(message, Direction::AllReduce, vec![made]), step),
        };
        for (_, layer) in &message.layers {
            let updates = &mut self.updates[usize::from(layer.0)];
            if updates.last() != Some(&updated) {
                updates.push(updated);
            }
        }
    }
}
