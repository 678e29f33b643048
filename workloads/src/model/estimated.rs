//! Estimated times, for models without measured ones: work over the rate of a machine.
//!
//! The backward pass of a tensor takes two multiply-adds for each of the forward pass: one for the
//! gradient of its input, one for its own.

use gradwire_protocol::units::Span;

use super::language::{LLAMA_TOKENS, TRANSFORMER_TOKENS};
use super::shape::{Architecture, set_forward};
use super::trained::{FORWARD_SHARE, Model};

/// Operations of a multiply-add on the way back.
const OPERATIONS: f64 = 4.0;

/// The machine, and its batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct AssumedMachine {
    /// Images or tokens of a step on one worker.
    samples: u64,
    /// Operations per second.
    rate: f64,
    /// The same in words.
    words: &'static str,
}

impl AssumedMachine {
    /// Returns the machine for which a model is estimated.
    pub(super) fn of(name: &str) -> Self {
        match name {
            "llama-8b" => Self {
                samples: LLAMA_TOKENS,
                // 40 % of 312 TFLOP/s, the dense rate in NVIDIA's data sheet of the A100.
                rate: 0.4 * 312e12,
                words: "estimated: 8,192 tokens at 125 TFLOP/s (40 % of an A100's bfloat16 rate)",
            },
            "transformer" => Self {
                samples: TRANSFORMER_TOKENS,
                // That of BERT-base's measured backward pass: 1,024 tokens of 84.9 M multiply-adds.
                rate: 5.24e12,
                words: "estimated: 3,125 tokens each way at 5.2 TFLOP/s, as BERT-base was measured \
                        on a V100",
            },
            _ => Self {
                samples: 32,
                // That of VGG16's measured backward pass: 32 images of 15.47 G multiply-adds.
                rate: 23.2e12,
                words: "estimated: 32 images at 23.2 TFLOP/s, as VGG16 was measured on a V100",
            },
        }
    }

    fn time(self, work: u64) -> Span {
        let operations = OPERATIONS * work as f64 * self.samples as f64;
        Span::from_nanos((operations / self.rate * 1e9).round() as u64)
    }
}

/// Returns the model of a shape, with gradients in the reverse order of its tensors.
pub(super) fn model(shape: &Architecture, machine: AssumedMachine) -> Model {
    let mut model = shape.model();
    let tensors = shape.tensors.iter().rev();
    for (one, tensor) in model.gradients.iter_mut().zip(tensors) {
        one.backward = machine.time(tensor.work);
    }
    set_forward(&mut model, FORWARD_SHARE);
    machine.words.clone_into(&mut model.times);
    model
}

#[cfg(test)]
mod tests {
    use super::super::{Model, shape_of};
    use super::*;

    #[test]
    fn an_estimate_of_vgg16_meets_its_measured_total() {
        let shape = shape_of("vgg16").expect("it is one of the names");
        let estimate = model(&shape, AssumedMachine::of("vgg19"))
            .backward()
            .as_secs_f64();
        let measured = Model::named("vgg16").expect("it is one of the names");
        let ratio = estimate / measured.backward().as_secs_f64();
        assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn an_estimate_of_bert_base_at_the_transformers_rate_meets_its_measured_total() {
        let shape = shape_of("bert-base").expect("it is one of the names");
        let machine = AssumedMachine {
            samples: 1_024,
            ..AssumedMachine::of("transformer")
        };
        let estimate = model(&shape, machine).backward().as_secs_f64();
        let measured = Model::named("bert-base").expect("it is one of the names");
        let ratio = estimate / measured.backward().as_secs_f64();
        assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
    }
}
