//! A problem that is learned in a moment: softmax regression on points around drawn centres.
//!
//! The loss is convex, so every way to train that works ends near the same value. The same seed
//! draws the same points.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const FEATURES: usize = 40;
const CLASSES: usize = 5;
/// Points to train on, and as many to test with.
const POINTS: usize = 240;
/// Distance of a class's centre from the middle, over the spread of its points.
const APART: f32 = 0.45;

/// Values of a model: a weight for each feature and one more of each class.
pub(super) const PARAMETERS: usize = CLASSES * (FEATURES + 1);

/// A problem.
#[derive(Clone, Debug)]
pub(super) struct LearningProblem {
    points: Vec<LabelledPoint>,
    unseen: Vec<LabelledPoint>,
}

#[derive(Clone, Debug)]
struct LabelledPoint {
    features: [f32; FEATURES],
    class: usize,
}

/// The quality of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ModelQuality {
    /// Mean cross-entropy of the points that it learned from.
    pub(super) loss: f64,
    /// Share of other points whose class it names.
    pub(super) accuracy: f64,
}

impl LearningProblem {
    /// Draws a problem.
    pub(super) fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let centres: Vec<[f32; FEATURES]> = (0..CLASSES)
            .map(|_| std::array::from_fn(|_| APART * normal(&mut random)))
            .collect();
        let mut draw = || {
            let points = (0..POINTS).map(|number| {
                let class = number % CLASSES;
                let features = std::array::from_fn(|at| centres[class][at] + normal(&mut random));
                LabelledPoint { features, class }
            });
            points.collect::<Vec<_>>()
        };
        Self {
            points: draw(),
            unseen: draw(),
        }
    }

    /// The mean gradient of the points that a worker among so many has.
    pub(super) fn gradient(&self, model: &[f32], (worker, workers): (usize, usize)) -> Vec<f32> {
        let own = POINTS * worker / workers..POINTS * (worker + 1) / workers;
        let share = 1.0 / own.len() as f32;
        let mut gradient = vec![0.0; PARAMETERS];
        for point in &self.points[own] {
            let mut wrong = probabilities(model, point);
            wrong[point.class] -= 1.0;
            for (rows, wrong) in gradient.chunks_exact_mut(FEATURES + 1).zip(wrong) {
                let (bias, weights) = rows.split_last_mut().expect("a row is not empty");
                for (weight, feature) in weights.iter_mut().zip(point.features) {
                    *weight += share * wrong * feature;
                }
                *bias += share * wrong;
            }
        }
        gradient
    }

    /// How good a model is.
    pub(super) fn quality(&self, model: &[f32]) -> ModelQuality {
        let losses = self.points.iter().map(|point| {
            let probability = f64::from(probabilities(model, point)[point.class]);
            -probability.max(f64::MIN_POSITIVE).ln()
        });
        let right = self.unseen.iter().filter(|point| {
            let all = probabilities(model, point);
            let best = (0..CLASSES).max_by(|one, other| all[*one].total_cmp(&all[*other]));
            best == Some(point.class)
        });
        ModelQuality {
            loss: losses.sum::<f64>() / POINTS as f64,
            accuracy: right.count() as f64 / POINTS as f64,
        }
    }
}

/// The probability of each class.
fn probabilities(model: &[f32], point: &LabelledPoint) -> [f32; CLASSES] {
    let mut scores = [0.0; CLASSES];
    for (score, rows) in scores.iter_mut().zip(model.chunks_exact(FEATURES + 1)) {
        let (bias, weights) = rows.split_last().expect("a row is not empty");
        let products = weights.iter().zip(point.features);
        *score = *bias + products.map(|(one, other)| one * other).sum::<f32>();
    }
    let most = scores.iter().copied().fold(f32::MIN, f32::max);
    let powers = scores.map(|score| (score - most).exp());
    let sum: f32 = powers.iter().sum();
    powers.map(|power| power / sum)
}

/// A value with mean 0 and variance 1: the sum of twelve uniform ones, less its mean.
fn normal(random: &mut impl Rng) -> f32 {
    (0..12).map(|_| random.random_range(-0.5_f32..0.5)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_are_the_slope_of_the_loss() {
        let problem = LearningProblem::new(3);
        let model = vec![0.1; PARAMETERS];
        let gradient = problem.gradient(&model, (0, 1));
        for at in [0, 17, FEATURES, PARAMETERS - 1] {
            let (mut above, mut below) = (model.clone(), model.clone());
            above[at] += 0.01;
            below[at] -= 0.01;
            let rise = problem.quality(&above).loss - problem.quality(&below).loss;
            let slope = rise / 0.02;
            assert!(
                (slope - f64::from(gradient[at])).abs() < 1e-3,
                "{at}: {slope}"
            );
        }
    }

    #[test]
    fn workers_gradients_have_the_gradient_of_all_as_mean() {
        let problem = LearningProblem::new(4);
        let model = vec![0.0; PARAMETERS];
        let all = problem.gradient(&model, (0, 1));
        let parts: Vec<_> = (0..8)
            .map(|worker| problem.gradient(&model, (worker, 8)))
            .collect();
        for (at, value) in all.iter().enumerate() {
            let mean = parts.iter().map(|part| part[at]).sum::<f32>() / 8.0;
            assert!((mean - value).abs() < 1e-5);
        }
    }
}
