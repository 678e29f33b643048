//! Runs several pieces of work at a time.

use std::sync::Mutex;

use crate::error::LabError;

/// Does all pieces of work, `at_once` at a time; results are in the order of the pieces. After the
/// first failure no further piece begins.
///
/// # Errors
/// That failure.
pub fn side_by_side<P: Sync, R: Send>(
    pieces: &[P],
    at_once: usize,
    work: impl Fn(&P) -> Result<R, LabError> + Sync,
) -> Result<Vec<R>, LabError> {
    let waiting = Mutex::new(pieces.iter().enumerate());
    let take = || waiting.lock().expect("no piece is done under it").next();
    let one_by_one = || {
        let mut done = Vec::new();
        while let Some((at, piece)) = take() {
            match work(piece) {
                Ok(result) => done.push((at, result)),
                Err(failure) => {
                    while take().is_some() {}
                    return Err(failure);
                }
            }
        }
        Ok(done)
    };
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let threads = (0..at_once.min(pieces.len())).map(|_| scope.spawn(one_by_one));
        let threads: Vec<_> = threads.collect();
        for thread in threads {
            all.push(thread.join().expect("no piece of work panics"));
        }
    });
    let mut done = Vec::new();
    for of_thread in all {
        done.extend(of_thread?);
    }
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
