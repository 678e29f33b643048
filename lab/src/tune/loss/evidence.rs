//! The result of a search and its evidence, in words and in the job file.

use std::path::Path;

use gradwire_tuning::tolerance::ToleranceSetting;
use gradwire_tuning::tolerance::gain::TimeGain;
use gradwire_tuning::tolerance::judge::{Better, Margin, ToleranceVerdict, mean_and_deviation};
use gradwire_tuning::tolerance::search::{JudgedSetting, ToleranceFinding};
use toml_edit::{Array, DocumentMut, Item};

use super::journal::{Accepted, TrialRecord};
use super::trial::percent;
use crate::error::LabError;
use crate::job_file::document;
use crate::output::WholeFile;

/// Deviations of the metric over seeds, in margins, from which on the margin says little.
const WIDE_SPREAD: f64 = 5.0;

/// The prefix of evidence in a job file: such lines are replaced, all other comments stay.
const MARK: &str = "# tune loss: ";

/// The question about a script.
#[derive(Clone, Debug)]
pub struct LossQuestion {
    /// The script.
    pub command: Vec<String>,
    /// The name of the metric that it prints.
    pub metric: String,
    /// The better direction of the metric.
    pub better: Better,
    /// The allowed loss of the metric.
    pub margin: Margin,
    /// The confidence for accepting a tolerance.
    pub confidence: f64,
    /// The only tolerance to test, if there is one.
    pub check: Option<f64>,
}

/// A finished search.
#[derive(Clone, Copy, Debug)]
pub struct SearchEvidence<'a> {
    /// The question.
    pub question: &'a LossQuestion,
    /// The result.
    pub finding: &'a ToleranceFinding,
    /// All trials of the metric.
    pub records: &'a [TrialRecord],
    /// The time that the result gains, if it was measured.
    pub timed: Option<&'a TimedTolerance>,
}

/// The time that a tolerance gains.
#[derive(Clone, Debug)]
pub struct TimedTolerance {
    /// Share of all packets that were dropped, with the tolerance and without it.
    pub path_loss: f64,
    /// The gain; `None` when the ranks told no times.
    pub gain: Option<TimeGain>,
}

impl SearchEvidence<'_> {
    /// The setting for the job: the accepted one, unless it was measured to gain no time.
    pub fn recommended(&self) -> ToleranceSetting {
        let gain = self.timed.and_then(|timed| timed.gain.as_ref());
        match gain {
            Some(gain) if !gain.pays() => ToleranceSetting::lossless(),
            _ => self.finding.found.clone(),
        }
    }

    /// Returns the time that the accepted setting gains, in words.
    pub fn gain_sentence(&self) -> Option<String> {
        let timed = self.timed?;
        let (found, path) = (of(&self.finding.found), percent(timed.path_loss));
        let Some(gain) = &timed.gain else {
            return Some(format!(
                "whether {found} gains time is not known: the ranks told no times of all-reduces"
            ));
        };
        let (low, high) = gain.range();
        let pays = match gain.pays() {
            true => "",
            false => "; no time is gained, so 0% is recommended",
        };
        Some(format!(
            "with {path}% of all packets lost, an all-reduce with {found} is {:.2} times as fast \
             as lossless ({low:.2} to {high:.2} in {} pairs){pays}",
            gain.median(),
            gain.pairs()
        ))
    }

    /// Mean and deviation of the metric without loss.
    pub fn baseline(&self) -> (f64, f64) {
        mean_and_deviation(&self.metrics(&ToleranceSetting::lossless()))
    }

    /// Returns the metric of all trials of a setting that have one.
    pub fn metrics(&self, setting: &ToleranceSetting) -> Vec<f64> {
        let trials = self.of(setting);
        trials.filter_map(|record| record.trial.metric).collect()
    }

    fn of(&self, setting: &ToleranceSetting) -> impl Iterator<Item = &TrialRecord> {
        let all = self.records.iter();
        all.filter(move |record| record.trial.setting == *setting)
    }

    /// Returns the share that was really lost in the trials of a setting.
    pub fn lost(&self, setting: &ToleranceSetting) -> f64 {
        Accepted::sum(self.of(setting).map(|record| record.accepted)).share()
    }

    /// Returns the result, line by line.
    pub fn lines(&self) -> Vec<String> {
        let (mean, deviation) = self.baseline();
        let (metric, finding) = (&self.question.metric, self.finding);
        let (of_mean, of_trials) = finding.margin_of;
        let margin = match self.question.margin {
            Margin::Relative(share) => format!(
                "{}% of {}, the mean of the first {of_trials}",
                percent(share),
                number_text(of_mean)
            ),
            Margin::Absolute(_) => "as given".to_owned(),
        };
        let timed = self.timed.and_then(|timed| timed.gain.as_ref());
        let timed = timed.map_or_else(String::new, |gain| {
            format!(" and {} pairs of them for times", gain.pairs())
        });
        let mut lines = vec![
            format!(
                "{} trials{timed} of: {}",
                self.records.len(),
                self.question.command.join(" ")
            ),
            format!(
                "{metric} without loss {} (deviation {} over {} seeds); margin {} ({margin}), \
                 confidence {}%",
                number_text(mean),
                number_text(deviation),
                self.metrics(&ToleranceSetting::lossless()).len(),
                number_text(finding.margin),
                percent(self.question.confidence)
            ),
        ];
        lines.extend(finding.cells.iter().map(|cell| self.sentence(cell)));
        lines.extend(self.undecided().into_iter().map(|(setting, trials)| {
            let lost = percent(self.lost(&setting));
            format!(
                "{} undecided after {trials} trials, {lost}% really lost",
                of(&setting)
            )
        }));
        lines.extend(self.gain_sentence());
        lines.extend(self.warnings());
        lines
    }

    /// The settings that were tried but not judged, and their trials.
    pub fn undecided(&self) -> Vec<(ToleranceSetting, usize)> {
        let mut found: Vec<(ToleranceSetting, usize)> = Vec::new();
        for record in self.records {
            let setting = &record.trial.setting;
            let cells = &self.finding.cells;
            if setting.is_lossless() || cells.iter().any(|cell| cell.setting == *setting) {
                continue;
            }
            match found.iter_mut().find(|(known, _)| known == setting) {
                Some((_, trials)) => *trials += 1,
                None => found.push((setting.clone(), 1)),
            }
        }
        found
    }

    /// One setting and its trials.
    pub fn sentence(&self, cell: &JudgedSetting) -> String {
        let (judgement, setting) = (&cell.judgement, &cell.setting);
        let worse = match judgement.worse_by.is_finite() {
            true => format!("worse by {}", number_text(judgement.worse_by)),
            false => {
                let note = self.of(setting).find_map(|record| record.note.as_deref());
                format!("no number ({})", note.unwrap_or("it was none"))
            }
        };
        let bound = judgement
            .at_most
            .filter(|_| judgement.verdict != ToleranceVerdict::Rejected);
        let bound = bound.map(|bound| format!(", at most {}", number_text(bound)));
        format!(
            "{} {}: {} {worse}{} in {} trials, {}% really lost",
            of(setting),
            verdict(judgement.verdict),
            self.question.metric,
            bound.unwrap_or_default(),
            judgement.trials,
            percent(self.lost(setting))
        )
    }

    /// Returns the facts that weaken the result.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let found = &self.finding.found;
        if !self.finding.is_complete {
            warnings.push("the trials ended before the search: more may be borne".to_owned());
        }
        let lost = self.lost(found);
        if !found.is_lossless() && found.groups.len() == 1 && 3.0 * lost < found.largest() {
            warnings.push(format!(
                "only {}% was really lost of {}% allowed: the tolerance is shown for that share \
                 only; messages may be too short for more",
                percent(lost),
                percent(found.largest())
            ));
        }
        let (deviation, margin) = (self.baseline().1, self.finding.margin);
        if deviation > WIDE_SPREAD * margin {
            warnings.push(format!(
                "the seed alone moves {} by {} (one deviation), {:.0} times the margin: trials of \
                 equal seeds agree, but two runs may differ by more than the margin anyway; a \
                 wider --margin, or longer trials, would say more",
                self.question.metric,
                number_text(deviation),
                deviation / margin
            ));
        }
        let baseline = self.metrics(&ToleranceSetting::lossless());
        if baseline.iter().all(|metric| *metric == baseline[0]) {
            warnings.push(
                "all trials without loss gave the same metric: the script may not use its seed, \
                 {seed} or GRADWIRE_TRIAL_SEED"
                    .to_owned(),
            );
        }
        warnings
    }

    /// Returns the found keys and their values, as TOML.
    pub fn values(&self) -> Vec<(&'static str, String)> {
        let found = self.recommended();
        let mut values = vec![("tolerance", share(found.least()).to_string())];
        if found.groups.len() > 1 {
            values.push(("loss.layer_tolerances", groups(&found).to_string()));
        }
        values.extend(
            found
                .tight
                .map(|tight| ("loss.tight_tolerance", share(tight).to_string())),
        );
        values
    }
}

/// Writes a value of a metric with as many digits as a row has room for.
pub fn number_text(value: f64) -> String {
    let digits = match value.abs() {
        large if large >= 1e5 => 0,
        large if large >= 10.0 => 3,
        _ => 5,
    };
    format!("{value:.digits$}")
}

/// Writes a setting in a few letters.
pub fn of(setting: &ToleranceSetting) -> String {
    let groups = setting.groups.iter();
    let groups: Vec<String> = groups
        .map(|share| format!("{}%", percent(*share)))
        .collect();
    let tight = setting.tight.map(|share| format!("/{}%", percent(share)));
    format!("{}{}", groups.join(", "), tight.unwrap_or_default())
}

/// Writes a verdict in a word or two.
pub fn verdict(verdict: ToleranceVerdict) -> &'static str {
    match verdict {
        ToleranceVerdict::Accepted => "accepted",
        ToleranceVerdict::Rejected => "rejected",
        ToleranceVerdict::NotShown => "not shown",
        ToleranceVerdict::Open => "open",
    }
}

fn share(share: f64) -> toml_edit::Value {
    format!("{}%", percent(share)).into()
}

fn groups(setting: &ToleranceSetting) -> toml_edit::Value {
    let shares = setting
        .groups
        .iter()
        .map(|one| format!("{}%", percent(*one)));
    shares.collect::<Array>().into()
}

/// Writes the result into the job file, with its evidence as comments.
///
/// # Errors
/// [`LabError::System`] when the file cannot be written.
pub fn write(
    path: &Path,
    mut document: DocumentMut,
    evidence: &SearchEvidence<'_>,
) -> Result<(), LabError> {
    set(&mut document, &evidence.recommended(), &evidence.lines());
    WholeFile::create(path)?.keep(document.to_string().as_bytes())
}

/// Sets the keys, replaces earlier evidence, and leaves everything else unchanged.
fn set(document: &mut DocumentMut, found: &ToleranceSetting, lines: &[String]) {
    document::put(document.as_table_mut(), "tolerance", share(found.least()));
    let mut key = document.key_mut("tolerance").expect("it has just been put");
    let decor = key.leaf_decor_mut();
    let before = decor.prefix().and_then(|prefix| prefix.as_str());
    let kept = before.unwrap_or_default().split_inclusive('\n');
    let kept: String = kept
        .filter(|line| !line.trim_start().starts_with(MARK))
        .collect();
    let told: String = lines.iter().map(|line| format!("{MARK}{line}\n")).collect();
    decor.set_prefix(format!("{kept}{told}"));
    if found.groups.len() < 2 && found.tight.is_none() && !document.contains_key("loss") {
        return;
    }
    let loss = document::table(document, "loss");
    // Results of an earlier search for groups and phases do not belong to this one.
    match found.groups.len() {
        0 | 1 => loss.remove("layer_tolerances"),
        _ => loss.insert("layer_tolerances", Item::Value(groups(found))),
    };
    match found.tight {
        None => loss.remove("tight_tolerance"),
        Some(tight) => loss.insert("tight_tolerance", Item::Value(share(tight))),
    };
}

#[cfg(test)]
mod tests {
    use gradwire_tuning::tolerance::ToleranceTrial;
    use gradwire_tuning::tolerance::judge::ToleranceJudgement;

    use super::super::journal::TrialPurpose;
    use super::super::page;
    use super::*;

    fn changed(text: &str, found: &ToleranceSetting, lines: &[&str]) -> String {
        let mut document: DocumentMut = text.parse().expect("TOML");
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        set(&mut document, found, &lines);
        let text = document.to_string();
        job_of(&text);
        text
    }

    fn record(share: f64, seed: u64, metric: f64, lost_bytes: u64) -> TrialRecord {
        TrialRecord {
            trial: ToleranceTrial {
                setting: ToleranceSetting::overall(share),
                seed,
                metric: Some(metric),
            },
            purpose: TrialPurpose::Metric,
            drop: share,
            burst: 1.0,
            accepted: Accepted {
                ranks: 2,
                owed_bytes: 10_000,
                allowed_bytes: 150,
                lost_bytes,
            },
            seconds: 1.0,
            all_reduce_us: None,
            note: None,
        }
    }

    /// What is told of a search whose seeds differ widely and that ended before its last setting.
    fn told() -> (Vec<String>, String) {
        let mut records = Vec::new();
        for (seed, metric) in [(1, 0.5), (2, 0.7), (3, 0.9), (4, 0.1)] {
            records.push(record(0.0, seed, metric, 0));
            records.push(record(0.015, seed, metric, 35));
        }
        records.push(record(0.03, 1, 0.5, 0));
        let finding = ToleranceFinding {
            found: ToleranceSetting::overall(0.015),
            cells: vec![JudgedSetting {
                setting: ToleranceSetting::overall(0.015),
                judgement: ToleranceJudgement {
                    verdict: ToleranceVerdict::Accepted,
                    trials: 4,
                    worse_by: 0.0,
                    at_most: Some(0.0),
                },
            }],
            margin: 0.007,
            margin_of: (0.7, 3),
            is_complete: false,
        };
        let question = LossQuestion {
            command: vec!["train".to_owned()],
            metric: "accuracy".to_owned(),
            better: Better::Higher,
            margin: Margin::Relative(0.01),
            confidence: 0.9,
            check: None,
        };
        let evidence = SearchEvidence {
            question: &question,
            finding: &finding,
            records: &records,
            timed: None,
        };
        (evidence.lines(), page::page(&evidence))
    }

    #[test]
    fn the_margin_names_the_mean_that_it_is_a_share_of() {
        let (lines, _) = told();
        let wanted = "margin 0.00700 (1% of 0.70000, the mean of the first 3)";
        assert!(lines[1].contains(wanted), "{lines:?}");
    }

    #[test]
    fn every_trial_is_in_the_summary() {
        let (lines, page) = told();
        let wanted = "3% undecided after 1 trials, 0% really lost";
        assert!(lines.iter().any(|line| line == wanted), "{lines:?}");
        assert!(page.contains("<td>undecided</td>"), "{page}");
    }

    #[test]
    fn the_page_has_the_facts_that_weaken_the_result() {
        let (lines, page) = told();
        for part in [
            "only 0.35% was really lost of 1.5% allowed",
            "49 times the margin",
        ] {
            assert!(lines.iter().any(|line| line.contains(part)), "{lines:?}");
            assert!(page.contains(part), "{page}");
        }
        assert!(page.contains("<h1>Found tolerance: 1.5% (0.35% really lost)</h1>"));
    }

    fn job_of(text: &str) {
        let _: toml::Table = text.parse().expect("still TOML");
    }

    #[test]
    fn comments_of_the_user_stay_and_earlier_evidence_goes() {
        let text = "# mine\nname = 'a' # kept\n\n# how much\n# tune loss: old\n\
                    tolerance = 0.01 # x\n\n[loss]\nmin_message = 0\n";
        let expected = "# mine\nname = 'a' # kept\n\n# how much\n# tune loss: new\n# tune loss: 2\n\
                        tolerance = \"3%\" # x\n\n[loss]\nmin_message = 0\n";
        assert_eq!(
            changed(text, &ToleranceSetting::overall(0.03), &["new", "2"]),
            expected
        );
    }

    #[test]
    fn new_job_files_have_result_and_evidence() {
        let found = ToleranceSetting {
            groups: vec![0.1, 0.02],
            tight: Some(0.015),
        };
        let expected = "# tune loss: why\ntolerance = \"2%\"\n\n[loss]\n\
                        layer_tolerances = [\"10%\", \"2%\"]\ntight_tolerance = \"1.5%\"\n";
        let text = changed("", &found, &["why"]);
        assert_eq!(text, expected);
        let again = changed(&text, &ToleranceSetting::overall(0.02), &["why"]);
        assert!(
            !again.contains("layer") && !again.contains("tight"),
            "{again}"
        );
    }

    #[test]
    fn tolerance_is_put_before_existing_tables() {
        let text = "name = \"a\"\n\n[faults]\nseed = 3\n";
        let expected = "name = \"a\"\n# tune loss: why\ntolerance = \"0%\"\n\n[faults]\nseed = 3\n";
        assert_eq!(
            changed(text, &ToleranceSetting::lossless(), &["why"]),
            expected
        );
    }
}
