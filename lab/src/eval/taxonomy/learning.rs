//! A problem that is learned in a moment: the subject of short texts from their words, by softmax
//! regression.
//!
//! The loss is convex, so every way to train that works comes near the same value. The same seed
//! draws the same texts.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::trained::LEARNING_RATE;

const SUBJECTS: usize = 5;
/// Words that a text of any subject may have; each subject prefers a part of its own.
const WORDS: usize = 480;
const OWN_WORDS: usize = WORDS / SUBJECTS;
const WORDS_OF_TEXT: usize = 16;
/// Share of a text's words that are of its subject's own.
const OWN_SHARE: f64 = 0.35;
/// Texts to learn from, and as many to test with.
const TEXTS: usize = 240;
/// The deviations of a normal distribution that 95 % of the draws are within.
const DEVIATIONS: f64 = 1.96;

/// Values of a model: of each subject a weight for each word, and one more.
pub(super) const PARAMETERS: usize = SUBJECTS * (WORDS + 1);

/// A problem.
#[derive(Clone, Debug)]
pub(super) struct LearningProblem {
    texts: Vec<KnownText>,
    unseen: Vec<KnownText>,
}

#[derive(Clone, Debug)]
struct KnownText {
    /// The place of each word among a subject's weights; the last weight counts for every text.
    words: [usize; WORDS_OF_TEXT],
    subject: usize,
}

/// The quality of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ModelQuality {
    /// Mean cross-entropy of the texts that it learned from.
    pub(super) loss: f64,
    /// Share of other texts whose subject it names.
    pub(super) accuracy: f64,
}

impl LearningProblem {
    /// Draws a problem.
    pub(super) fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut texts = || {
            let texts = (0..TEXTS).map(|number| KnownText::new(number % SUBJECTS, &mut random));
            texts.collect::<Vec<_>>()
        };
        Self {
            texts: texts(),
            unseen: texts(),
        }
    }

    /// The mean gradient of the texts that a worker among this many has.
    pub(super) fn gradient(&self, model: &[f32], (worker, workers): (usize, usize)) -> Vec<f32> {
        let own = TEXTS * worker / workers..TEXTS * (worker + 1) / workers;
        let share = 1.0 / own.len() as f32;
        let mut gradient = vec![0.0; PARAMETERS];
        for text in &self.texts[own] {
            let mut wrong = text.probabilities(model);
            wrong[text.subject] -= 1.0;
            for (subject, wrong) in wrong.iter().enumerate() {
                for place in text.places(subject) {
                    gradient[place] += share * wrong;
                }
            }
        }
        gradient
    }

    /// The best model that a worker among this many learns alone, from its own texts: the lowest
    /// loss and the highest accuracy, on the texts of all.
    pub(super) fn alone(&self, workers: usize, steps: u32) -> ModelQuality {
        let models = (0..workers).map(|worker| {
            let mut model = vec![0.0; PARAMETERS];
            for _ in 0..steps {
                let gradient = self.gradient(&model, (worker, workers));
                let moves = model.iter_mut().zip(&gradient);
                moves.for_each(|(value, slope)| *value -= LEARNING_RATE * slope);
            }
            self.quality(&model)
        });
        let worst = ModelQuality {
            loss: f64::INFINITY,
            accuracy: 0.0,
        };
        models.fold(worst, |best, one| ModelQuality {
            loss: best.loss.min(one.loss),
            accuracy: best.accuracy.max(one.accuracy),
        })
    }

    /// The difference of two accuracies that 95 of 100 pairs of equally good models stay within:
    /// both are shares of [`TEXTS`] drawn texts (binomial, normal approximation).
    pub(super) fn accuracy_apart(accuracy: f64) -> f64 {
        DEVIATIONS * (2.0 * accuracy * (1.0 - accuracy) / TEXTS as f64).sqrt()
    }

    /// How good a model is.
    pub(super) fn quality(&self, model: &[f32]) -> ModelQuality {
        let losses = self.texts.iter().map(|text| {
            let probability = f64::from(text.probabilities(model)[text.subject]);
            -probability.max(f64::MIN_POSITIVE).ln()
        });
        let right = self.unseen.iter().filter(|text| {
            let all = text.probabilities(model);
            let best = (0..SUBJECTS).max_by(|one, other| all[*one].total_cmp(&all[*other]));
            best == Some(text.subject)
        });
        ModelQuality {
            loss: losses.sum::<f64>() / TEXTS as f64,
            accuracy: right.count() as f64 / TEXTS as f64,
        }
    }
}

impl KnownText {
    fn new(subject: usize, random: &mut impl Rng) -> Self {
        let word = |_| match random.random_bool(OWN_SHARE) {
            true => subject * OWN_WORDS + random.random_range(0..OWN_WORDS),
            false => random.random_range(0..WORDS),
        };
        Self {
            words: std::array::from_fn(word),
            subject,
        }
    }

    /// The places of a subject's weights that count for this text.
    fn places(&self, subject: usize) -> impl Iterator<Item = usize> + '_ {
        let first = subject * (WORDS + 1);
        let words = self.words.iter().map(move |word| first + word);
        words.chain([first + WORDS])
    }

    /// The probability of each subject.
    fn probabilities(&self, model: &[f32]) -> [f32; SUBJECTS] {
        let scores: [f32; SUBJECTS] =
            std::array::from_fn(|subject| self.places(subject).map(|place| model[place]).sum());
        let most = scores.iter().copied().fold(f32::MIN, f32::max);
        let powers = scores.map(|score| (score - most).exp());
        let sum: f32 = powers.iter().sum();
        powers.map(|power| power / sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_are_the_slope_of_the_loss() {
        let problem = LearningProblem::new(3);
        let model = vec![0.1; PARAMETERS];
        let gradient = problem.gradient(&model, (0, 1));
        for at in [0, 17, WORDS, PARAMETERS - 1] {
            let (mut above, mut below) = (model.clone(), model.clone());
            above[at] += 0.1;
            below[at] -= 0.1;
            let rise = problem.quality(&above).loss - problem.quality(&below).loss;
            let slope = rise / 0.2;
            let apart = (slope - f64::from(gradient[at])).abs();
            assert!(apart < 1e-3, "{at}: {slope} and {}", gradient[at]);
        }
    }

    #[test]
    fn a_worker_alone_learns_less_than_from_all_texts() {
        let problem = LearningProblem::new(5);
        let all = problem.alone(1, 40);
        let (six, eight) = (problem.alone(6, 40), problem.alone(8, 40));
        assert!(
            all.loss < six.loss && six.loss < eight.loss,
            "{six:?} {eight:?}"
        );
        assert!(all.accuracy > six.accuracy, "{all:?} {six:?}");
    }

    #[test]
    fn accuracies_differ_by_chance() {
        // 240 texts and an accuracy of .9: a deviation of .0194 each, .0274 of the difference.
        let apart = LearningProblem::accuracy_apart(0.9);
        assert!((apart - 0.0537).abs() < 1e-3, "{apart}");
    }

    #[test]
    fn gradients_of_workers_have_that_of_all_as_mean() {
        let problem = LearningProblem::new(4);
        let model = vec![0.0; PARAMETERS];
        let all = problem.gradient(&model, (0, 1));
        let parts = (0..8).map(|worker| problem.gradient(&model, (worker, 8)));
        let parts: Vec<Vec<f32>> = parts.collect();
        for (at, value) in all.iter().enumerate() {
            let mean = parts.iter().map(|part| part[at]).sum::<f32>() / 8.0;
            assert!((mean - value).abs() < 1e-5, "{at}: {mean} and {value}");
        }
    }
}
