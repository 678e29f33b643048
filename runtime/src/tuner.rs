//! Chunk and credit of a running job, found in its first steps.
//!
//! The training program measures steps and asks for the next trial; one rank decides for all.
//!
//! 1. Times of the steps before the first question are ignored: allocations and the order of
//!    buckets settle in them. ByteScheduler drops its first point, too.
//! 2. The job's own chunk and credit are the first trial, so the result is never worse.
//! 3. `gradwire-tuning` chooses the other trials.
//!
//! The caller decides when a step begins, and lets all ranks change between the same two
//! operations.

use gradwire_protocol::job::Job;
use gradwire_protocol::units::ByteCount;
pub use gradwire_tuning::surface::SchedulePoint;
use gradwire_tuning::surface::{Axes, ScheduleSearch, SizeAxis};

/// Chunks that DDP's buckets of 25 MiB can be cut into, and credits for a few such buckets.
const AXES: Axes = Axes {
    chunk: SizeAxis {
        smallest: ByteCount::kib(256),
        steps: 8,
    },
    credit: SizeAxis {
        smallest: ByteCount::kib(512),
        steps: 8,
    },
};
/// Seed of the search: the same job tries the same points first.
const SEED: u64 = 1;

/// The next chunk and credit of a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TuningAdvice {
    /// Measure some steps with this.
    Try(SchedulePoint),
    /// This was best: keep it, there is no further trial.
    Keep(SchedulePoint),
}

/// A search over a job's first steps.
pub(crate) struct JobTuner {
    own: SchedulePoint,
    trials: usize,
    /// The point that is being measured; `None` before the first question.
    trying: Option<SchedulePoint>,
    told: Vec<(SchedulePoint, f64)>,
    search: ScheduleSearch,
}

impl std::fmt::Debug for JobTuner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tuner")
            .field("trying", &self.trying)
            .field("told", &self.told)
            .finish_non_exhaustive()
    }
}

impl JobTuner {
    /// The tuning that a job asks for.
    pub(crate) fn new(job: &Job) -> Self {
        let trials = usize::from(job.collectives.tuning);
        Self {
            own: Self::own_point(job),
            trials,
            trying: None,
            told: Vec::new(),
            search: ScheduleSearch::new(AXES, trials.saturating_sub(1), SEED),
        }
    }

    /// The chunk and credit that a job names itself.
    pub(crate) fn own_point(job: &Job) -> SchedulePoint {
        SchedulePoint {
            chunk: job.collectives.chunk,
            credit: job.collectives.credit,
        }
    }

    /// The next advice, after steps of `seconds` each with the previous advice.
    pub(crate) fn advise(&mut self, seconds: f64) -> TuningAdvice {
        if self.trials == 0 {
            return TuningAdvice::Keep(self.own);
        }
        let Some(tried) = self.trying.take() else {
            self.trying = Some(self.own);
            return TuningAdvice::Try(self.own);
        };
        self.tell(tried, seconds.max(f64::MIN_POSITIVE));
        if let Some(next) = self.search.propose() {
            self.trying = Some(next);
            return TuningAdvice::Try(next);
        }
        TuningAdvice::Keep(self.conclude())
    }

    fn tell(&mut self, point: SchedulePoint, seconds: f64) {
        if !self.told.is_empty() {
            self.search.tell(point, seconds);
        }
        self.told.push((point, seconds));
        let SchedulePoint { chunk, credit } = point;
        let (trial, of) = (self.told.len(), self.trials);
        let ms = seconds * 1e3;
        log::debug!("tuning, trial {trial} of {of}: {ms:.3} ms with {chunk} and credit {credit}");
    }

    fn conclude(&mut self) -> SchedulePoint {
        let by_time = |a: &&(SchedulePoint, f64), b: &&(SchedulePoint, f64)| a.1.total_cmp(&b.1);
        let own = self.told.first().expect("the own point has been told");
        let best = self.told.iter().min_by(by_time).unwrap_or(own);
        let (SchedulePoint { chunk, credit }, trials) = (best.0, self.told.len());
        log::info!(
            "tuning: a step takes {:.3} ms with collectives.chunk = \"{chunk}\" and credit = \
             \"{credit}\", the best of {trials} trials; {:.3} ms as the job says",
            best.1 * 1e3,
            own.1 * 1e3,
        );
        self.trials = 0;
        self.own = best.0;
        self.own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(trials: u16) -> Job {
        let mut job = Job::default();
        job.collectives.tuning = trials;
        job
    }

    /// Small chunks are fast.
    fn seconds(point: SchedulePoint) -> f64 {
        point.chunk.get() as f64
    }

    #[test]
    fn a_job_without_trials_keeps_its_own() {
        let job = job(0);
        let own = JobTuner::own_point(&job);
        assert_eq!(JobTuner::new(&job).advise(1.0), TuningAdvice::Keep(own));
    }

    #[test]
    fn the_own_point_is_tried_first() {
        let job = job(8);
        let mut tuner = JobTuner::new(&job);
        let mut tried = Vec::new();
        let mut advice = tuner.advise(1.0);
        while let TuningAdvice::Try(point) = advice {
            tried.push(point);
            advice = tuner.advise(seconds(point));
        }
        assert_eq!((tried.len(), tried[0]), (8, JobTuner::own_point(&job)));
        let smallest = tried.iter().map(|point| point.chunk).min();
        let TuningAdvice::Keep(best) = advice else {
            panic!("{advice:?} is no end");
        };
        assert_eq!(Some(best.chunk), smallest);
        assert_eq!(tuner.advise(1.0), TuningAdvice::Keep(best));
    }

    #[test]
    fn where_nothing_is_faster_the_own_point_stays() {
        let job = job(5);
        let mut tuner = JobTuner::new(&job);
        let own = JobTuner::own_point(&job);
        let mut advice = tuner.advise(1.0);
        while let TuningAdvice::Try(point) = advice {
            advice = tuner.advise(if point == own { 0.5 } else { 1.0 });
        }
        assert_eq!(advice, TuningAdvice::Keep(own));
    }
}
