//! A model as a training step uses it: its layers with forward times, its gradients with sizes and
//! backward times.

use gradwire_protocol::units::{ByteCount, Span};

/// Forward time over backward time of a layer: 146 ms and 279 ms, the totals of VGG16 on a V100 in
/// the public SwitchML-omnetpp (`ModelStats.cc`). Counted in operations it would be a half.
pub const FORWARD_SHARE: f64 = 146.0 / 279.0;

/// Bytes of an element of a gradient: 32-bit floats.
pub const ELEMENT_BYTES: u64 = 4;

/// A model as a training step uses it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Model {
    /// One of [`NAMES`](super::NAMES), or the name of its file.
    pub name: String,
    /// The source of its times, in words.
    pub times: String,
    /// Its layers in the order of the forward pass.
    pub layers: Vec<ModelLayer>,
    /// Its gradients in the order in which the backward pass makes them.
    pub gradients: Vec<Gradient>,
    /// Samples, images or tokens, of one device's share of a step; `None` where unknown.
    pub samples: Option<u32>,
    /// Facts that its source lacks, and parts that were left out, in words.
    pub remarks: Vec<String>,
}

/// A unit of computing in the forward pass.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelLayer {
    /// Its name, such as `features.0`.
    pub name: String,
    /// Time of its forward pass.
    pub forward: Span,
    /// The values of its activations; `None` where the source has none.
    pub values: Option<LayerValues>,
}

/// The activations of a layer, in elements for one sample: an image or a token.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LayerValues {
    /// Elements that it reads; 0 where they are indices, or where a layer before reads the same.
    pub reads: u64,
    /// Elements that it writes.
    pub writes: u64,
    /// Elements that its backward pass needs and that the forward pass keeps.
    pub kept: u64,
    /// How its weights can be split over devices.
    pub split: WeightSplit,
}

/// How the weights of a layer can be split over devices (Shoeybi et al., Megatron-LM, arXiv
/// 1909.08053, section 3).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WeightSplit {
    /// Not at all: each output needs all inputs and all weights, as in a normalisation.
    #[default]
    Whole,
    /// By outputs: each device computes a part of them from all inputs.
    Columns,
    /// By inputs, which a layer before has split by its outputs; the products are summed.
    Rows,
}

/// The gradient of one tensor.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Gradient {
    /// Its name, such as `features.0.weight`.
    pub name: String,
    /// Index of its layer in [`Model::layers`].
    pub layer: u16,
    /// Elements; 0 where a layer only computes.
    pub parameters: u64,
    /// Time from the gradient before, or from the start of the backward pass, until this one is
    /// ready.
    pub backward: Span,
}

impl Model {
    /// Elements of all gradients together.
    pub fn parameters(&self) -> u64 {
        self.gradients.iter().map(|one| one.parameters).sum()
    }

    /// Bytes of all gradients together.
    pub fn bytes(&self) -> ByteCount {
        ByteCount::new(self.parameters() * ELEMENT_BYTES)
    }

    /// The forward pass of all layers.
    pub fn forward(&self) -> Span {
        sum(self.layers.iter().map(|layer| layer.forward))
    }

    /// The backward pass of all layers.
    pub fn backward(&self) -> Span {
        sum(self.gradients.iter().map(|one| one.backward))
    }

    /// The backward pass of one layer.
    pub fn backward_of(&self, layer: u16) -> Span {
        let own = self.gradients.iter().filter(|one| one.layer == layer);
        sum(own.map(|one| one.backward))
    }

    /// Returns this model with sizes and times divided by `by`: on an unchanged fabric computing
    /// and sending keep their ratio, and a run takes a `by`-th of the time. Latencies then weigh
    /// `by` times as much. A gradient keeps at least one element.
    #[must_use]
    pub fn divided(mut self, by: u32) -> Self {
        let by = u64::from(by.max(1));
        for layer in &mut self.layers {
            layer.forward = layer.forward.divided(by);
            if let Some(values) = &mut layer.values {
                values.reads = values.reads.div_ceil(by);
                values.writes = values.writes.div_ceil(by);
                values.kept = values.kept.div_ceil(by);
            }
        }
        for one in &mut self.gradients {
            one.backward = one.backward.divided(by);
            one.parameters = one.parameters.div_ceil(by);
        }
        self
    }
}

fn sum(spans: impl Iterator<Item = Span>) -> Span {
    spans.fold(Span::ZERO, |all, one| all + one)
}
