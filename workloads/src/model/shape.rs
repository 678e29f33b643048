//! The tensors of an architecture, in the order in which a framework defines them.

use super::trained::{Gradient, LayerValues, Model, ModelLayer, WeightSplit};
use gradwire_protocol::units::Span;

/// A tensor.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Tensor {
    /// Its layer's name, a dot, and its role.
    pub(super) name: String,
    /// Elements.
    pub(super) parameters: u64,
    /// Multiply-adds of the forward pass with this tensor, for one image or token; zero where they
    /// are negligible, and where times were measured.
    pub(super) work: u64,
    /// The activations of its layer, where they are this tensor's.
    pub(super) values: LayerValues,
}

/// All tensors of a model.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Architecture {
    pub(super) tensors: Vec<Tensor>,
}

impl Architecture {
    /// Adds a tensor that needs `work` for each image or token.
    pub(super) fn add(&mut self, name: String, parameters: u64, work: u64) {
        self.tensors.push(Tensor {
            name,
            parameters,
            work,
            values: LayerValues::default(),
        });
    }

    /// Says what the last tensor reads, which is kept, and what it writes.
    pub(super) fn passes(&mut self, (reads, writes): (u64, u64), split: WeightSplit) {
        let last = self.tensors.last_mut().expect("a tensor comes first");
        last.values = LayerValues {
            reads,
            writes,
            kept: reads,
            split,
        };
    }

    /// Says that this many elements are kept behind the last tensor, such as those before a
    /// function that is not linear.
    pub(super) fn keeps(&mut self, elements: u64) {
        let last = self.tensors.last_mut().expect("a tensor comes first");
        last.values.kept += elements;
    }

    /// Adds a [`Self::linear`] whose inputs the layers before have split by their outputs.
    pub(super) fn linear_of_parts(&mut self, name: &str, from: u64, to: u64) {
        self.linear(name, from, to);
        let weight = self.tensors.iter_mut().nth_back(1);
        weight.expect("a bias follows its weight").values.split = WeightSplit::Rows;
    }

    /// Adds the weight and the bias of a layer that multiplies `from` values by a matrix.
    pub(super) fn linear(&mut self, name: &str, from: u64, to: u64) {
        self.add(format!("{name}.weight"), from * to, from * to);
        self.passes((from, to), WeightSplit::Columns);
        self.add(format!("{name}.bias"), to, 0);
    }

    /// Adds the weight and the bias of a normalisation.
    pub(super) fn norm(&mut self, name: &str, width: u64) {
        self.norm_of(name, width, width);
    }

    /// Adds a normalisation of `width` channels and this many elements.
    pub(super) fn norm_of(&mut self, name: &str, width: u64, elements: u64) {
        self.add(format!("{name}.weight"), width, 0);
        self.passes((elements, elements), WeightSplit::Whole);
        self.add(format!("{name}.bias"), width, 0);
    }

    /// Returns a model with these tensors as gradients, last first, without times.
    pub(super) fn model(&self) -> Model {
        let mut layers: Vec<ModelLayer> = Vec::new();
        let mut gradients = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            let (layer, _) = tensor.name.rsplit_once('.').expect("names have a dot");
            if layers.last().is_none_or(|last| last.name != layer) {
                layers.push(ModelLayer {
                    name: layer.to_owned(),
                    forward: Span::ZERO,
                    values: Some(LayerValues::default()),
                });
            }
            let own = layers.last_mut().and_then(|last| last.values.as_mut());
            own.expect("it was set").add(tensor.values);
            gradients.push(Gradient {
                name: tensor.name.clone(),
                layer: (layers.len() - 1) as u16,
                parameters: tensor.parameters,
                backward: Span::ZERO,
            });
        }
        gradients.reverse();
        Model {
            name: String::new(),
            times: String::new(),
            layers,
            gradients,
            samples: None,
            remarks: Vec::new(),
        }
    }
}

impl LayerValues {
    /// Adds the values of another tensor of the layer.
    fn add(&mut self, other: Self) {
        self.kept += other.kept;
        if (other.reads, other.writes) != (0, 0) {
            (self.reads, self.writes) = (other.reads, other.writes);
            self.split = other.split;
        }
    }
}

/// Sets each layer's forward time to a share of its backward time.
pub(super) fn set_forward(model: &mut Model, share: f64) {
    for one in &model.gradients {
        let layer = &mut model.layers[usize::from(one.layer)].forward;
        let picos = one.backward.as_picos() as f64 * share;
        *layer = *layer + Span::from_picos(picos.round() as u64);
    }
}
