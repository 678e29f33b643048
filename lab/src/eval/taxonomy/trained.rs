//! The outcome of a training.

use serde::Serialize;

use super::learning::LearningProblem;

/// The step that a model goes down its gradient.
pub(super) const LEARNING_RATE: f32 = 1.0;

/// A trained model, and how it came about.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainedModel {
    /// Mean cross-entropy of the points that it learned from.
    pub loss: f64,
    /// Share of other points whose class it names.
    pub accuracy: f64,
    /// The largest difference between the same value in two workers' models.
    pub apart: f32,
    /// The most steps that a worker began before another.
    pub ahead: u32,
    /// Segments whose loss was accepted.
    pub lost: u64,
    /// Segments that were to be received.
    pub expected: u64,
}

impl TrainedModel {
    /// A model, beside those of the workers.
    pub(super) fn new(problem: &LearningProblem, model: &[f32], workers: &[&[f32]]) -> Self {
        let quality = problem.quality(model);
        let spread = |at: usize| {
            let values = workers.iter().map(|worker| worker[at]);
            let most = values.clone().fold(f32::MIN, f32::max);
            most - values.fold(f32::MAX, f32::min)
        };
        Self {
            loss: quality.loss,
            accuracy: quality.accuracy,
            apart: (0..model.len()).map(spread).fold(0.0, f32::max),
            ahead: 0,
            lost: 0,
            expected: 0,
        }
    }

    /// The share of the segments whose loss was accepted.
    pub fn lost_share(&self) -> f64 {
        self.lost as f64 / self.expected.max(1) as f64
    }
}

/// The mean of models.
pub(super) fn mean(models: &[&[f32]]) -> Vec<f32> {
    let count = models.len() as f32;
    let length = models.first().map_or(0, |model| model.len());
    let mean = |at: usize| models.iter().map(|model| model[at]).sum::<f32>() / count;
    (0..length).map(mean).collect()
}
