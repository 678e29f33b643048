//! Training whose matrices are sharded over a grid of ranks: SUMMA in 2.5 dimensions.
//!
//! `depth` layers of `side` times `side` hosts share each product C = A B of a model, as
//! `gradwire.summa` does: host `(layer * side + row) * side + column` has a block of A, the
//! activations, and one of B, the weights, which every layer has.
//!
//! ```text
//! forward    turn k: A's block k along the row, B's block k along the column, then compute
//! dA         turn k: B's block k along the column, compute, reduce along the row to place k
//! dB         turn k: A's block k along the row, compute, reduce along the column to place k;
//!            then an all-reduce over the layers
//! ```
//!
//! The blocks of turn k + 1 travel during turn k. Other tensors of a model, such as those of
//! embeddings and normalisations, only compute. The model's times are those of one host's share of
//! the batch, and each turn takes an equal part.

use gradwire_protocol::units::{ByteCount, Layer, Span};

use super::exchange::{ProductGrid, Training};
use super::tasks::ProgramTasks;
use super::workers::{TrainingPrograms, WorkerSteps};
use crate::model::{ELEMENT_BYTES, Gradient, Model};
use crate::workload::{CollectiveKind, Task, Work, Workload};

impl ProductGrid {
    fn rows(self) -> u32 {
        self.side * self.depth
    }

    /// Returns the hosts of each group: those of the rows, of the columns, then those at one place
    /// of all layers.
    fn groups(self) -> Vec<Vec<u32>> {
        let Self { side, depth, .. } = self;
        let rows = (0..self.rows()).map(|row| (0..side).map(|at| row * side + at).collect());
        let columns = (0..self.rows()).map(|number| {
            let (layer, column) = (number / side, number % side);
            let host = |row| (layer * side + row) * side + column;
            (0..side).map(host).collect()
        });
        let area = side * side;
        let places = (0..area).map(|place| (0..depth).map(|layer| layer * area + place).collect());
        rows.chain(columns).chain(places).collect()
    }
}

/// A matrix of weights: `from` rows, `to` columns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Matrix {
    from: u64,
    to: u64,
}

/// Returns the matrix of each layer that has one: a weight, and a bias with one element for each
/// of its columns.
fn matrices(model: &Model) -> Vec<Option<Matrix>> {
    let role = |layer: u16, role: &str| {
        let own = |one: &&Gradient| one.layer == layer && one.name.ends_with(role);
        model.gradients.iter().find(own).map(|one| one.parameters)
    };
    let layers = 0..model.layers.len() as u16;
    let matrix = |layer| {
        let (weight, to) = (role(layer, "weight")?, role(layer, "bias")?);
        let is_matrix = to > 0 && weight > to && weight % to == 0;
        is_matrix.then(|| Matrix {
            from: weight / to,
            to,
        })
    };
    layers.map(matrix).collect()
}

/// Returns whether a grid has anything to multiply.
pub(super) fn multiplies(model: &Model) -> bool {
    matrices(model).iter().any(Option::is_some)
}

/// Makes the workload of steps whose model is scaled already; `whole` is the model before that.
pub(super) fn workload(training: &Training, whole: &Model, grid: ProductGrid) -> Workload {
    let matrices = matrices(whole);
    let mut programs = TrainingPrograms::new(training);
    for host in 0..grid.hosts() {
        let steps = GridSteps {
            training,
            matrices: &matrices,
            seat: GridSeat { grid, host },
            tasks: programs.tasks(host, grid.hosts()),
            complete: Vec::new(),
            updates: vec![None; training.model.layers.len()],
        };
        programs.add_worker(host, steps);
    }
    programs.workload(grid.groups())
}

/// A host's place, and its groups.
#[derive(Clone, Copy)]
struct GridSeat {
    grid: ProductGrid,
    host: u32,
}

impl GridSeat {
    fn group(self, along: Along) -> u32 {
        let ProductGrid { side, .. } = self.grid;
        let (row, column) = (self.host / side, self.host % side);
        match along {
            Along::Row => row,
            Along::Column => self.grid.rows() + row / side * side + column,
            Along::Layers => 2 * self.grid.rows() + self.host % (side * side),
        }
    }

    /// Returns the number of hosts of a group.
    fn members(self, along: Along) -> u32 {
        match along {
            Along::Row | Along::Column => self.grid.side,
            Along::Layers => self.grid.depth,
        }
    }
}

/// The hosts that differ in one coordinate.
#[derive(Clone, Copy)]
enum Along {
    Row,
    Column,
    Layers,
}

/// Blocks of one kind: the group in which they travel, and their size.
#[derive(Clone, Copy)]
struct Blocks {
    name: &'static str,
    along: Along,
    bytes: u64,
}

/// One product of a layer: the blocks that it reads, and those that it sums.
struct Product {
    name: String,
    layer: u16,
    reads: Vec<Blocks>,
    sums: Option<Blocks>,
    span: Span,
}

/// The program of one host so far.
struct GridSteps<'a> {
    training: &'a Training,
    matrices: &'a [Option<Matrix>],
    seat: GridSeat,
    tasks: ProgramTasks,
    /// The tasks after which the product or layer before is complete.
    complete: Vec<u32>,
    /// By layer, the task that brings the sum of its weights' gradient.
    updates: Vec<Option<u32>>,
}

impl WorkerSteps for GridSteps<'_> {
    fn tasks(&mut self) -> &mut ProgramTasks {
        &mut self.tasks
    }

    fn forward(&mut self, step: u32) -> u32 {
        let mut last = 0;
        for (number, layer) in (0..).zip(&self.training.model.layers) {
            let name = format!("forward {}", layer.name);
            self.complete
                .extend(self.updates[usize::from(number)].take());
            last = match self.matrices[usize::from(number)] {
                None => self.layer(name, layer.forward, step),
                Some(matrix) => self.product(
                    &Product {
                        name,
                        layer: number,
                        reads: vec![self.tall(matrix, "A"), self.square(matrix, "B")],
                        sums: None,
                        span: layer.forward,
                    },
                    step,
                ),
            };
        }
        last
    }

    fn backward(&mut self, step: u32) {
        let model = &self.training.model;
        let layers: Vec<_> = (0..).zip(&model.layers).collect();
        for (layer, one) in layers.into_iter().rev() {
            let span = model.backward_of(layer);
            let name = format!("backward {}", one.name);
            let Some(matrix) = self.matrices[usize::from(layer)] else {
                self.layer(name, span, step);
                continue;
            };
            let (name, span) = (&name, span.divided(2));
            let product = |which, reads, sums| Product {
                name: format!("{name} {which}"),
                layer,
                reads: vec![reads],
                sums: Some(sums),
                span,
            };
            let to_input = product("dA", self.square(matrix, "B"), self.tall(matrix, "dA"));
            let to_weights = product("dB", self.tall(matrix, "A"), self.square(matrix, "dB"));
            self.product(&to_input, step);
            self.product(&to_weights, step);
            let sum = Blocks {
                along: Along::Layers,
                ..self.square(matrix, "dB over layers")
            };
            let after = self.complete.clone();
            let place = (one.name.as_str(), layer);
            let summed = self.collective(CollectiveKind::AllReduce, sum, place, (after, step));
            self.updates[usize::from(layer)] = summed;
            self.complete.extend(summed);
        }
    }
}

impl GridSteps<'_> {
    /// Adds a layer that only computes.
    fn layer(&mut self, name: String, span: Span, step: u32) -> u32 {
        let after = std::mem::take(&mut self.complete);
        let computed = self.tasks.compute(name, span, after, step);
        self.complete.push(computed);
        computed
    }

    /// Adds the turns of a product; returns the last one that computes.
    fn product(&mut self, product: &Product, step: u32) -> u32 {
        let side = self.seat.grid.side;
        let before = std::mem::take(&mut self.complete);
        let place = (product.name.as_str(), product.layer);
        let mut turns: Vec<u32> = Vec::new();
        for turn in 0..side {
            // The blocks of a turn leave when the turn before begins: after the one before that.
            let ready = match turn.checked_sub(2) {
                None => before.clone(),
                Some(earlier) => vec![turns[earlier as usize]],
            };
            let mut after = before.clone();
            for &blocks in &product.reads {
                let kind = CollectiveKind::Broadcast { root: turn };
                after.extend(self.collective(kind, blocks, place, (ready.clone(), step)));
            }
            let span = product.span.divided(u64::from(side));
            let name = product.name.clone();
            let computed = self.tasks.compute(name, span, after, step);
            turns.push(computed);
            if let Some(blocks) = product.sums {
                let kind = CollectiveKind::Reduce { root: turn };
                let sum = self.collective(kind, blocks, place, (vec![computed], step));
                self.complete.extend(sum);
            }
        }
        let last = turns[side as usize - 1];
        self.complete.push(last);
        last
    }

    /// Adds a collective along a row, a column or the layers; a group of one has none.
    fn collective(
        &mut self,
        kind: CollectiveKind,
        blocks: Blocks,
        (name, layer): (&str, u16),
        (after, step): (Vec<u32>, u32),
    ) -> Option<u32> {
        if self.seat.members(blocks.along) == 1 {
            return None;
        }
        let work = Work::Collective {
            kind,
            group: self.seat.group(blocks.along),
            bytes: ByteCount::new(blocks.bytes),
            layers: vec![(0, Layer(layer))],
        };
        let word: &'static str = kind.into();
        let name = format!("{word} {} {name}", blocks.name);
        Some(self.tasks.add(Task::new(name, work, after), step))
    }

    /// Returns the blocks of A, or of its gradient: a host's tokens times all columns.
    fn tall(&self, matrix: Matrix, name: &'static str) -> Blocks {
        Blocks {
            name,
            along: Along::Row,
            bytes: self.scaled(u64::from(self.seat.grid.tokens) * matrix.from),
        }
    }

    /// Returns the blocks of B, or of its gradient: an equal part for each host of a layer.
    fn square(&self, matrix: Matrix, name: &'static str) -> Blocks {
        let area = u64::from(self.seat.grid.side).pow(2);
        Blocks {
            name,
            along: Along::Column,
            bytes: self.scaled((matrix.from * matrix.to).div_ceil(area)),
        }
    }

    /// Returns the bytes of elements; the model's times are divided by the scale, too.
    fn scaled(&self, elements: u64) -> u64 {
        elements.div_ceil(u64::from(self.training.scale.max(1))) * ELEMENT_BYTES
    }
}
