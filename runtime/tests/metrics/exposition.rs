//! A strict reader of OpenMetrics text: anything outside its grammar is refused.

use std::collections::BTreeMap;

/// The samples of a text: by name and labels, as written.
pub(crate) type Samples = BTreeMap<String, f64>;

/// Reads a text, or reports the fault of a line.
pub(crate) fn parse(text: &str) -> Result<Samples, String> {
    let body = text
        .strip_suffix("# EOF\n")
        .ok_or("it does not end with # EOF")?;
    let mut samples = Samples::new();
    let mut families: Vec<(&str, &str)> = Vec::new();
    let mut described: Option<&str> = None;
    for (at, line) in body.lines().enumerate() {
        let wrong = |what: &str| format!("line {}: {what}: {line}", at + 1);
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or_else(|| wrong("no help"))?;
            if !is_name(name) || help.is_empty() || families.iter().any(|(seen, _)| *seen == name) {
                return Err(wrong("no new name with a help"));
            }
            described = Some(name);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(|| wrong("no type"))?;
            let known = ["counter", "gauge", "histogram"].contains(&kind);
            if described.take() != Some(name) || !known {
                return Err(wrong("no known type behind its help"));
            }
            families.push((name, kind));
        } else {
            let family = families.last().ok_or_else(|| wrong("no family"))?;
            let (key, value) = sample(line, *family).ok_or_else(|| wrong("no sample"))?;
            if samples.insert(key, value).is_some() {
                return Err(wrong("said twice"));
            }
        }
    }
    check_histograms(&families, &samples)?;
    Ok(samples)
}

/// A line such as `name_total{a="b"} 1`, of a family.
fn sample(line: &str, (family, kind): (&str, &str)) -> Option<(String, f64)> {
    let (key, value) = line.rsplit_once(' ')?;
    let value: f64 = value.parse().ok()?;
    let (name, labels) = key.split_once('{')?;
    let suffix = name.strip_prefix(family)?;
    let fits = match kind {
        "counter" => suffix == "_total" && value.fract() == 0.0 && value >= 0.0,
        "gauge" => suffix.is_empty(),
        _ => ["_sum", "_count", "_bucket"].contains(&suffix),
    };
    let mut rest = labels.strip_suffix('}')?;
    let mut names = Vec::new();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = after.split_once('"')?;
        rest = match after.strip_prefix(',') {
            Some(after) if !after.is_empty() => after,
            None if after.is_empty() => after,
            _ => return None,
        };
        if !is_name(name) || value.contains(['\\', '\n']) || names.contains(&name) {
            return None;
        }
        names.push(name);
    }
    let bucket = suffix == "_bucket";
    (fits && is_name(name) && bucket == names.contains(&"le")).then(|| (key.to_owned(), value))
}

fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(fits) && text.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Buckets grow with their bounds, and the last one has the count.
fn check_histograms(families: &[(&str, &str)], samples: &Samples) -> Result<(), String> {
    for (family, _) in families.iter().filter(|(_, kind)| *kind == "histogram") {
        let counts = samples.iter();
        let counts = counts.filter_map(|(key, count)| {
            Some((key.strip_prefix(&format!("{family}_count{{"))?, *count))
        });
        for (labels, count) in counts {
            let labels = labels.trim_end_matches('}');
            let mut buckets = buckets(samples, family, labels);
            buckets.sort_by(f64_pair);
            let grows = buckets.is_sorted_by_key(|(_, count)| *count);
            if !grows || buckets.last() != Some(&(f64::INFINITY, count)) {
                return Err(format!(
                    "{family} {labels}: {buckets:?} do not add up to {count}"
                ));
            }
        }
    }
    Ok(())
}

fn buckets(samples: &Samples, family: &str, labels: &str) -> Vec<(f64, f64)> {
    let start = format!("{family}_bucket{{");
    let entries = samples.iter().filter_map(|(key, count)| {
        let inside = key.strip_prefix(&start)?.trim_end_matches('}');
        let (bounds, others): (Vec<&str>, Vec<&str>) = inside
            .split(',')
            .partition(|label| label.starts_with("le="));
        let [bound] = bounds[..] else { return None };
        let bound = bound.trim_start_matches("le=").trim_matches('"');
        let bound = bound.replace("+Inf", "inf").parse().ok()?;
        (others.join(",") == labels).then_some((bound, *count))
    });
    entries.collect()
}

fn f64_pair(a: &(f64, f64), b: &(f64, f64)) -> std::cmp::Ordering {
    a.0.total_cmp(&b.0)
}
