//! The tensors of an architecture, in the order in which a framework defines them.

use super::trained::{Gradient, Model, ModelLayer};
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
        });
    }

    /// Adds the weight and the bias of a layer that multiplies `from` values by a matrix.
    pub(super) fn linear(&mut self, name: &str, from: u64, to: u64) {
        self.add(format!("{name}.weight"), from * to, from * to);
        self.add(format!("{name}.bias"), to, 0);
    }

    /// Adds the weight and the bias of a normalisation.
    pub(super) fn norm(&mut self, name: &str, width: u64) {
        self.add(format!("{name}.weight"), width, 0);
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
                });
            }
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
            remarks: Vec::new(),
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
