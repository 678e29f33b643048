//! The page of a search: the metric over the really accepted loss, seed by seed, with the margin,
//! and the settings as a table.

use gradwire_tuning::tolerance::ToleranceSetting;
use gradwire_tuning::tolerance::judge::{Better, ToleranceVerdict, mean_and_deviation};
use gradwire_tuning::tolerance::search::JudgedSetting;

use super::evidence::{SearchEvidence, verdict};
use super::evidence::{number_text, of};
use super::journal::TrialRecord;
use super::trial::percent;
use gradwire_report::html::{self, document, figure, section, swatch};
use gradwire_report::plot::{Plot, PlotAxis, dashed, stroke};
use gradwire_report::svg::escaped;

/// Half of the page's width.
const SIZE: (f64, f64) = (558.0, 340.0);
/// Colours that colour-blind people can tell apart (Okabe and Ito).
const INDEPENDENT: &str = "#0072b2";
const BURSTS: &str = "#d55e00";
const MEAN: &str = "#16202b";
const MARGIN: &str = "#b3152a";
const FOUND: &str = "#009e73";
const BASELINE: &str = "#8a94a0";

const CURVE: &str = "Each disc is a trial, at the share of its droppable bytes that its ranks \
    really did without; each dark mark the mean of a tolerance, with one standard deviation over \
    seeds. Hollow marks were not accepted. On the right, what the seed alone does is taken out: \
    trials are moved by how far the lossless trial of their seed is from the mean. Values outside \
    of a picture lie at its edge.";
const TABLE: &str = "Worse by: mean difference from the lossless trials of the same seeds; at \
    most: its one-sided bound, as strict as looking after each trial asks for. Accepted is what \
    has its bound within the margin. Several tolerances are those of groups of layers, the front \
    first; behind a slash, that of steps after a change of the gradients.";

/// Makes the page of a search.
pub fn page(evidence: &SearchEvidence<'_>) -> String {
    let metric = escaped(&evidence.question.metric);
    let found = found(evidence);
    let mut body = format!("<h1>{}</h1>\n", escaped(&found));
    let lines = evidence.lines().into_iter().take(2);
    let lines = lines.chain(evidence.gain_sentence());
    for line in lines.chain(evidence.warnings()) {
        body += &format!("<p>{}</p>\n", escaped(&line));
    }
    let pictures = figure("All trials", &curve(evidence, Level::OfEachSeed))
        + &figure("Around the margin", &curve(evidence, Level::TakenOut));
    let pair = format!("<div class=\"pair\">\n{pictures}</div>\n{}", legend());
    body += &section(&format!("{metric} over what was lost"), CURVE, &pair);
    body += &section("Tolerances", TABLE, &table(evidence));
    body += &section(
        "Trials",
        "In the order in which they were done.",
        &trials(evidence),
    );
    document(&found, &body)
}

fn found(evidence: &SearchEvidence<'_>) -> String {
    let finding = evidence.finding;
    match (evidence.question.check, finding.cells.first()) {
        (Some(share), Some(cell)) => {
            let verdict = verdict(cell.judgement.verdict);
            format!("A tolerance of {}%: {verdict}", percent(share))
        }
        _ if finding.found.is_lossless() => "No tolerance was accepted".to_owned(),
        _ => format!(
            "Found tolerance: {} ({}% really lost)",
            of(&finding.found),
            percent(evidence.lost(&finding.found))
        ),
    }
}

/// The treatment of the differences between seeds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Level {
    /// Shown: the metric as measured.
    OfEachSeed,
    /// Removed: differences from the lossless trial of the same seed, around the baseline's mean.
    TakenOut,
}

impl Level {
    /// Returns the metric of a trial as drawn.
    fn metric(self, evidence: &SearchEvidence<'_>, record: &TrialRecord) -> Option<f64> {
        let metric = record.trial.metric?;
        if self == Self::OfEachSeed {
            return Some(metric);
        }
        let trials = evidence.records.iter().map(|record| &record.trial);
        let mut lossless = trials.filter(|trial| trial.setting.is_lossless());
        let lossless = lossless.find(|trial| trial.seed == record.trial.seed)?;
        Some(evidence.baseline().0 + metric - lossless.metric?)
    }
}

/// The range of the vertical axis.
type Range = (f64, f64);

fn whole(evidence: &SearchEvidence<'_>) -> Range {
    let metrics = evidence
        .records
        .iter()
        .filter_map(|record| record.trial.metric);
    let (mean, margin) = (evidence.baseline().0, evidence.finding.margin);
    let range = metrics.fold((mean - margin, mean + margin), |(low, high), metric| {
        (low.min(metric), high.max(metric))
    });
    let room = 0.04 * (range.1 - range.0);
    (range.0 - room, range.1 + room)
}

fn near(evidence: &SearchEvidence<'_>) -> Range {
    let (mean, reach) = (evidence.baseline().0, 3.0 * evidence.finding.margin);
    (mean - reach, mean + reach)
}

/// The range of lost shares, in percent.
fn losses(evidence: &SearchEvidence<'_>) -> Range {
    let shares = evidence
        .records
        .iter()
        .map(|record| record.accepted.share());
    let range = shares
        .filter(|share| *share > 0.0)
        .fold((1.0, 0.0), |range: Range, share| {
            (range.0.min(share), range.1.max(share))
        });
    match range {
        (low, high) if low <= high => (low * 70.0, high * 130.0),
        _ => (0.0, 1.0),
    }
}

fn curve(evidence: &SearchEvidence<'_>, level: Level) -> String {
    let (low, high) = losses(evidence);
    let range = match level {
        Level::OfEachSeed => whole(evidence),
        Level::TakenOut => near(evidence),
    };
    let mut plot = Plot::new(
        SIZE,
        PlotAxis::fitting("really lost, %", (low, high)),
        PlotAxis::linear(&evidence.question.metric, range),
    );
    let mean = evidence.baseline().0;
    let allowed = match evidence.question.better {
        Better::Lower => mean + evidence.finding.margin,
        Better::Higher => mean - evidence.finding.margin,
    };
    plot.curve(&[(low, mean), (high, mean)], &dashed(BASELINE));
    plot.curve(&[(low, allowed), (high, allowed)], &dashed(MARGIN));
    let found = &evidence.finding.found;
    if !found.is_lossless() {
        let at = 100.0 * evidence.lost(found);
        plot.curve(&[(at, range.0), (at, range.1)], &stroke(FOUND));
    }
    for record in evidence.records {
        if let Some(metric) = level.metric(evidence, record) {
            disc(&mut plot, record, (low, metric));
        }
    }
    let mut means: Vec<(f64, f64)> = evidence
        .finding
        .cells
        .iter()
        .filter_map(|cell| mark(&mut plot, (evidence, level), cell))
        .collect();
    means.sort_by(|a, b| a.0.total_cmp(&b.0));
    plot.curve(&means, &format!(r#"stroke="{MEAN}" stroke-width="1""#));
    plot.drawing
        .element("the metric of all trials over the loss that was accepted")
}

fn disc(plot: &mut Plot, record: &TrialRecord, (least, metric): (f64, f64)) {
    let (lossless, lost) = (record.trial.setting.is_lossless(), record.accepted.share());
    let colour = match (lossless, record.burst > 1.0) {
        (true, _) => BASELINE,
        (false, true) => BURSTS,
        (false, false) => INDEPENDENT,
    };
    let told = format!(
        "{}, seed {}: {}, {}% lost",
        of(&record.trial.setting),
        record.trial.seed,
        number_text(metric),
        percent(lost)
    );
    let at = plot.at((100.0 * lost).max(least), metric);
    let style = format!(r#"fill="{colour}" fill-opacity="0.7""#);
    plot.drawing.disc(at, 4.0, &style, &told);
}

/// Draws the mean of a setting and its spread; returns its place.
fn mark(
    plot: &mut Plot,
    (evidence, level): (&SearchEvidence<'_>, Level),
    cell: &JudgedSetting,
) -> Option<(f64, f64)> {
    let setting = &cell.setting;
    let trials = evidence.records.iter();
    let trials = trials.filter(|record| record.trial.setting == *setting);
    let metrics: Vec<f64> = trials
        .filter_map(|record| level.metric(evidence, record))
        .collect();
    if metrics.is_empty() {
        return None;
    }
    let (mean, deviation) = mean_and_deviation(&metrics);
    let lost = 100.0 * evidence.lost(setting);
    plot.curve(
        &[(lost, mean - deviation), (lost, mean + deviation)],
        &stroke(MEAN),
    );
    let fill = match cell.judgement.verdict {
        ToleranceVerdict::Accepted => MEAN,
        _ => "#fff",
    };
    let style = format!(r#"fill="{fill}" stroke="{MEAN}" stroke-width="1.5""#);
    let told = format!("{}: {} in the mean", of(setting), number_text(mean));
    let at = plot.at(lost, mean);
    plot.drawing.disc(at, 5.0, &style, &told);
    Some((lost, mean))
}

fn legend() -> String {
    let names = [
        (INDEPENDENT, "independent losses"),
        (BURSTS, "bursts of 8"),
        (BASELINE, "without loss; dashed: its mean"),
        (MARGIN, "dashed: the margin"),
        (FOUND, "found"),
    ];
    let names = names
        .map(|(colour, name)| swatch(colour, name))
        .join(" &emsp; ");
    format!("<p>{names}</p>\n")
}

fn table(evidence: &SearchEvidence<'_>) -> String {
    let names =
        "tolerance | verdict | trials | metric | deviation | worse by | at most | really lost, %";
    let (mean, deviation) = evidence.baseline();
    let lossless = evidence.metrics(&ToleranceSetting::lossless()).len();
    let first = [
        "0% (baseline)".to_owned(),
        String::new(),
        lossless.to_string(),
        number_text(mean),
        number_text(deviation),
        String::new(),
        format!("margin {}", number_text(evidence.finding.margin)),
        "0".to_owned(),
    ];
    let others = evidence.finding.cells.iter().map(|one| {
        let metrics = evidence.metrics(&one.setting);
        let spread = (!metrics.is_empty()).then(|| mean_and_deviation(&metrics));
        let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number_text);
        let judgement = &one.judgement;
        vec![
            of(&one.setting),
            verdict(judgement.verdict).to_owned(),
            judgement.trials.to_string(),
            shown(spread.map(|(mean, _)| mean)),
            shown(spread.map(|(_, deviation)| deviation)),
            number_text(judgement.worse_by),
            shown(judgement.at_most),
            percent(evidence.lost(&one.setting)),
        ]
    });
    let undecided = evidence.undecided().into_iter().map(|(setting, trials)| {
        let lost = percent(evidence.lost(&setting));
        let [verdict, none] = ["undecided", "-"].map(str::to_owned);
        let [mean, deviation, worse, at_most] = [(); 4].map(|()| none.clone());
        vec![
            of(&setting),
            verdict,
            trials.to_string(),
            mean,
            deviation,
            worse,
            at_most,
            lost,
        ]
    });
    let rows = [first.to_vec()].into_iter().chain(others);
    html::table(names, rows.chain(undecided))
}

fn trials(evidence: &SearchEvidence<'_>) -> String {
    let names = "tolerance | seed | dropped, % | burst | really lost, % | metric | seconds";
    let rows = evidence.records.iter().map(|record| {
        let trial = &record.trial;
        let metric = trial.metric.map(number_text);
        let note = record.note.as_deref().map(escaped);
        vec![
            of(&trial.setting),
            trial.seed.to_string(),
            percent(record.drop),
            record.burst.to_string(),
            percent(record.accepted.share()),
            metric.or(note).unwrap_or_default(),
            format!("{:.1}", record.seconds),
        ]
    });
    html::table(names, rows)
}
