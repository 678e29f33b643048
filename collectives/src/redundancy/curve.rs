//! Storage per server against the bytes that rebuild one, as far as any code can go (Dimakis,
//! Godfrey, Wu, Wainwright, Ramchandran: Network Coding for Distributed Storage Systems, IEEE
//! Transactions on Information Theory 56 (9), 2010, theorem 1).
//!
//! Both are shares of all state, which n servers store; any k hold everything, d rebuild one.

/// A point at which the curve changes its slope.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Corner {
    /// Storage of a server.
    pub storage: f64,
    /// Bytes that rebuild a server.
    pub repair: f64,
}

/// The corners for `needed` (k) and `rebuilders` (d), from least storage (MSR) to least repair
/// (MBR).
pub fn corners(needed: usize, rebuilders: usize) -> Vec<Corner> {
    let corner = |at: usize| {
        let repair = repair_at(at, needed, rebuilders);
        Corner {
            storage: least_storage(repair, needed, rebuilders),
            repair,
        }
    };
    (0..needed).map(corner).collect()
}

/// f(i): the repair traffic of corner i.
fn repair_at(corner: usize, needed: usize, rebuilders: usize) -> f64 {
    let [i, k, d] = [corner, needed, rebuilders].map(|count| count as f64);
    2.0 * d / ((2.0 * k - i - 1.0) * i + 2.0 * k * (d - k + 1.0))
}

/// The least storage with which `repair` is enough; infinite if no storage is.
pub fn least_storage(repair: f64, needed: usize, rebuilders: usize) -> f64 {
    let [k, d] = [needed, rebuilders].map(|count| count as f64);
    if repair >= repair_at(0, needed, rebuilders) {
        return 1.0 / k;
    }
    // The corner at MBR divides two rounded values, so a repair an ulp below it still has storage.
    let slack = 1.0 - 4.0 * f64::EPSILON;
    let corner = (1..needed).find(|i| repair >= slack * repair_at(*i, needed, rebuilders));
    corner.map_or(f64::INFINITY, |corner| {
        let i = corner as f64;
        let slope = (2.0 * d - 2.0 * k + i + 1.0) * i / (2.0 * d);
        (1.0 - slope * repair) / (k - i)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that reach `needed` servers, each rebuilt after the one before: the minimum cut.
    fn minimum_cut(storage: f64, repair: f64, needed: usize, rebuilders: usize) -> f64 {
        let part = repair / rebuilders as f64;
        let flows = (0..needed).map(|i| storage.min((rebuilders - i) as f64 * part));
        flows.sum()
    }

    fn codes() -> impl Iterator<Item = (usize, usize)> {
        (1..=12).flat_map(|needed| (needed..=14).map(move |rebuilders| (needed, rebuilders)))
    }

    #[test]
    fn every_corner_lies_on_the_minimum_cut() {
        for (k, d) in codes() {
            for Corner { storage, repair } in corners(k, d) {
                let cut = minimum_cut(storage, repair, k, d);
                assert!((cut - 1.0).abs() < 1e-12, "k {k}, d {d}: {cut}");
                let less = minimum_cut(storage * 0.999, repair, k, d);
                assert!(less < 1.0, "k {k}, d {d}: less storage is not enough");
            }
        }
    }

    #[test]
    fn storage_between_corners_is_the_minimum_cut() {
        for (k, d) in codes() {
            for pair in corners(k, d).windows(2) {
                for part in [0.1, 0.5, 0.9] {
                    let repair = pair[0].repair * (1.0 - part) + pair[1].repair * part;
                    let storage = least_storage(repair, k, d);
                    let cut = minimum_cut(storage, repair, k, d);
                    assert!((cut - 1.0).abs() < 1e-12, "k {k}, d {d}: {cut}");
                }
            }
        }
    }

    #[test]
    fn the_ends_are_the_published_closed_forms() {
        for (k, d, published) in [
            (2, 3, [(0.5, 0.75), (0.6, 0.6)]),
            (5, 9, [(0.2, 0.36), (9.0 / 35.0, 9.0 / 35.0)]),
            (10, 13, [(0.1, 0.325), (13.0 / 85.0, 13.0 / 85.0)]),
        ] {
            let corners = corners(k, d);
            for (corner, (storage, repair)) in [corners[0], corners[k - 1]].iter().zip(published) {
                assert!((corner.storage - storage).abs() < 1e-12, "k {k}, d {d}");
                assert!((corner.repair - repair).abs() < 1e-12, "k {k}, d {d}");
            }
        }
    }

    #[test]
    fn less_repair_than_at_the_last_corner_is_impossible() {
        assert_eq!(least_storage(0.25, 5, 9), f64::INFINITY);
    }
}
