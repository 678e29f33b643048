//! The trained models: the size of each tensor's gradient, and the time at which it is ready.
//!
//! A [`Model`] (`trained`) is one of [`NAMES`], a user's table ([`Model::from_csv`]), or a file of
//! another tool ([`Model::from_layers`], [`Model::from_chakra`]). Sizes of the named ones are
//! generated from the architecture (`vision`, `language`). Their times were measured on a V100
//! (`measured`), or are estimated from the work of each layer where no table exists (`estimated`);
//! [`Model::times`] says which.
//!
//! Forward times were not measured with the gradients. A layer's forward pass takes
//! [`FORWARD_SHARE`] of its backward pass.
//!
//! A [`ModelBlock`] is the layers of a model that one number names, such as a transformer's layer.
//!
//! The steps that train a model are in [`crate::training`].

mod block;
mod estimated;
mod foreign;
mod language;
mod measured;
mod shape;
mod table;
mod trained;
mod vision;

pub use block::{BlockSplit, BlockValues, ModelBlock};
pub(crate) use foreign::ForeignLayer;
pub use table::LAYERS_MAX;
pub use trained::{
    ELEMENT_BYTES, FORWARD_SHARE, Gradient, LayerValues, Model, ModelLayer, WeightSplit,
};

use crate::words::did_you_mean;
use shape::Architecture;

/// The models with a name.
pub const NAMES: [&str; 10] = [
    "alexnet",
    "vgg16",
    "vgg19",
    "resnet50",
    "resnet101",
    "transformer",
    "bert-base",
    "bert-large",
    "gpt2",
    "llama-8b",
];

/// No model has this name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "`{given}` is not a model{nearest}; known are {}; or a file: NAME.csv, NAME.txt (SimAI, \
     ASTRA-sim), NAME.et or NAME.json (Chakra)",
    NAMES.join(", ")
)]
pub struct UnknownModel {
    /// The given text.
    given: String,
    /// A suggestion, or an empty text.
    nearest: String,
}

impl Model {
    /// Returns the model of a name.
    ///
    /// # Errors
    /// [`UnknownModel`] lists all names.
    pub fn named(name: &str) -> Result<Self, UnknownModel> {
        let shape = shape_of(name).ok_or_else(|| UnknownModel {
            given: name.to_owned(),
            nearest: did_you_mean(name, NAMES),
        })?;
        let mut model = match measured::table(name) {
            Some(table) => measured::model(&shape, table),
            None => estimated::model(&shape, estimated::AssumedMachine::of(name)),
        };
        name.clone_into(&mut model.name);
        model.samples = Some(samples_of(name));
        Ok(model)
    }
}

fn shape_of(name: &str) -> Option<Architecture> {
    Some(match name {
        "alexnet" => vision::alexnet(),
        "vgg16" => vision::vgg(&[2, 2, 3, 3, 3]),
        "vgg19" => vision::vgg(&[2, 2, 4, 4, 4]),
        "resnet50" => vision::resnet([3, 4, 6, 3]),
        "resnet101" => vision::resnet([3, 4, 23, 3]),
        "transformer" => language::transformer(),
        "bert-base" => language::bert(12, 768),
        "bert-large" => language::bert(24, 1024),
        "gpt2" => language::gpt2(),
        "llama-8b" => language::llama_8b(),
        _ => return None,
    })
}

/// Images or tokens of a step on one device. The batches of GPT-2 and BERT-large were not published
/// beside their times; they get the tokens of BERT-base.
fn samples_of(name: &str) -> u32 {
    match name {
        "llama-8b" => language::LLAMA_TOKENS as u32,
        "transformer" => language::TRANSFORMER_TOKENS as u32,
        "bert-base" | "bert-large" | "gpt2" => 1_024,
        _ => 32,
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::Span;

    use super::*;

    fn model(name: &str) -> Model {
        Model::named(name).expect("it is one of the names")
    }

    #[test]
    fn generated_sizes_add_up_to_the_published_totals() {
        let published = [
            ("alexnet", 16, 61_100_840),
            ("vgg16", 32, 138_357_544),
            ("vgg19", 38, 143_667_240),
            ("resnet50", 161, 25_557_032),
            ("resnet101", 314, 44_549_160),
            // 44,140,544 of `torch.nn.Transformer()` and 37,000 x 512; the paper rounds to 65 M.
            ("transformer", 185, 63_084_544),
            ("bert-base", 199, 108_897_794),
            ("bert-large", 391, 334_100_482),
            ("gpt2", 148, 124_439_808),
            ("llama-8b", 291, 8_030_261_248),
        ];
        assert_eq!(published.map(|(name, _, _)| name), NAMES);
        for (name, tensors, parameters) in published {
            let model = model(name);
            assert_eq!(model.parameters(), parameters, "{name}");
            assert_eq!(model.gradients.len(), tensors, "{name}");
            assert_eq!(model.bytes().get(), parameters * 4, "{name}");
        }
    }

    #[test]
    fn the_measured_backward_passes_take_what_espresso_measured() {
        let sums = [
            ("vgg16", 85_310),
            ("resnet50", 63_533),
            ("resnet101", 120_391),
            ("bert-base", 66_335),
            ("bert-large", 204_171),
            ("gpt2", 211_329),
        ];
        for (name, micros) in sums {
            let model = model(name);
            assert_eq!(model.backward(), Span::from_micros(micros), "{name}");
            let share = model.forward().as_secs_f64() / model.backward().as_secs_f64();
            assert!((share - FORWARD_SHARE).abs() < 1e-6, "{name}: {share}");
        }
    }

    #[test]
    fn every_gradient_has_its_layer_and_every_layer_a_gradient() {
        for name in NAMES {
            let model = model(name);
            for one in &model.gradients {
                let layer = &model.layers[usize::from(one.layer)].name;
                let within = one.name.strip_prefix(layer.as_str());
                assert!(within.is_some_and(|rest| rest.starts_with('.')), "{name}");
            }
            for layer in 0..model.layers.len() {
                let of_layer = |one: &&Gradient| usize::from(one.layer) == layer;
                assert!(model.gradients.iter().any(|one| of_layer(&one)), "{name}");
            }
        }
    }

    #[test]
    fn what_forward_needs_first_comes_last_in_backward() {
        for (name, first) in [
            ("vgg16", "features.0.weight"),
            ("resnet50", "conv1.weight"),
            ("transformer", "embedding.weight"),
            ("bert-base", "bert.embeddings.word_embeddings.weight"),
            ("gpt2", "transformer.wte.weight"),
            ("llama-8b", "model.embed_tokens.weight"),
        ] {
            let model = model(name);
            let last = model.gradients.last().expect("it has gradients");
            assert_eq!((last.name.as_str(), last.layer), (first, 0), "{name}");
        }
    }

    #[test]
    fn a_name_that_is_nearly_right_is_suggested() {
        let error = Model::named("vgg61")
            .expect_err("there is none")
            .to_string();
        assert!(
            error.starts_with("`vgg61` is not a model (did you mean `vgg16`?); known are alexnet")
        );
        let error = Model::named("").expect_err("there is none").to_string();
        assert!(
            error.contains("gpt2, llama-8b; or a file: NAME.csv, NAME.txt"),
            "{error}"
        );
    }

    #[test]
    fn a_divided_model_keeps_its_ratio_of_computing_to_sending() {
        let (whole, part) = (model("vgg16"), model("vgg16").divided(16));
        let ratio = |model: &Model| model.backward().as_secs_f64() / model.parameters() as f64;
        assert!((ratio(&part) / ratio(&whole) - 1.0).abs() < 1e-3);
        assert!(part.gradients.iter().all(|one| one.parameters > 0));
        assert_eq!(whole.clone().divided(1), whole);
    }
}
