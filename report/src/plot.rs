//! Axes, curves, bars and legends: the common parts of all pictures with two axes.

use super::svg::{Anchor, Drawing, Scale, number};

/// Room around the plot for axes and titles: left, right, top, bottom.
const MARGINS: (f64, f64, f64, f64) = (58.0, 16.0, 34.0, 44.0);
/// Pixels that a letter of a legend takes, about.
const LETTER: f64 = 7.2;

/// The colour of a transport, the same in every picture; told apart by colour-blind people too
/// (Okabe and Ito).
pub fn colour(transport: &str) -> &'static str {
    match transport {
        "gradwire" => "#0072b2",
        "dctcp" => "#d55e00",
        "dctcp-10ms" => "#f0e442",
        "dctcp-classes" => "#56b4e9",
        "pias" => "#000000",
        "ndp" => "#009e73",
        "roce" => "#cc79a7",
        "pfabric" => "#e69f00",
        "irn" => "#882255",
        "swift" => "#999933",
        "nscc" => "#332288",
        "eqds" => "#aa4499",
        "rccc" => "#117733",
        _ => "#56606b",
    }
}

/// A picture with two axes.
pub struct Plot {
    /// The picture.
    pub drawing: Drawing,
    x: Scale,
    y: Scale,
    size: (f64, f64),
}

/// The title, with the unit, and the values of an axis.
pub struct PlotAxis<'a> {
    title: &'a str,
    values: (f64, f64),
    scale: fn((f64, f64), (f64, f64)) -> Scale,
}

impl<'a> PlotAxis<'a> {
    /// An axis with a linear scale.
    pub fn linear(title: &'a str, values: (f64, f64)) -> Self {
        let scale = Scale::linear;
        Self {
            title,
            values,
            scale,
        }
    }

    /// An axis whose scale is logarithmic where its values differ by much.
    pub fn fitting(title: &'a str, values: (f64, f64)) -> Self {
        Self {
            scale: Scale::fitting,
            ..Self::linear(title, values)
        }
    }
}

/// Pixels that an axis of a picture of this width covers.
fn across(width: f64) -> (f64, f64) {
    (MARGINS.0, width - MARGINS.1)
}

/// Pixels that an axis of a picture of this height covers, from its foot up.
fn upwards(height: f64) -> (f64, f64) {
    (height - MARGINS.3, MARGINS.2)
}

impl Plot {
    /// An empty plot: its axes with their ticks and titles.
    pub fn new(size: (f64, f64), x: PlotAxis<'_>, y: PlotAxis<'_>) -> Self {
        let mut drawing = Drawing::new(size.0, size.1);
        let ((left, right), (foot, _)) = (across(size.0), upwards(size.1));
        let scales = (
            (x.scale)(x.values, across(size.0)),
            (y.scale)(y.values, upwards(size.1)),
        );
        ruled(&mut drawing, size, (&scales.1, y.title));
        for tick in scales.0.ticks(6) {
            let at = scales.0.at(tick);
            drawing.line((at, foot), (at, foot + 4.0), r#"class="axis""#);
            drawing.text((at, foot + 18.0), Anchor::Middle, "tick", &number(tick));
        }
        drawing.line((left, foot), (right, foot), r#"class="axis""#);
        let middle = f64::midpoint(left, right);
        drawing.text((middle, size.1 - 6.0), Anchor::Middle, "title", x.title);
        Self {
            drawing,
            x: scales.0,
            y: scales.1,
            size,
        }
    }

    /// Where values are in the picture; outside of the axes, at their ends.
    pub fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.x.at(x), self.y.at(y))
    }

    /// A curve through values.
    pub fn curve(&mut self, values: &[(f64, f64)], style: &str) {
        let place = |&(x, y): &(f64, f64)| self.at(x, y);
        let points: Vec<_> = values.iter().map(place).collect();
        self.drawing.path(&points, style);
    }

    /// Names of curves with their strokes, in a row above the plot.
    pub fn legend(&mut self, entries: &[(String, String)]) {
        let mut x = across(self.size.0).0;
        for (name, style) in entries {
            self.drawing.line((x, 12.0), (x + 20.0, 12.0), style);
            self.drawing
                .text((x + 26.0, 16.0), Anchor::Start, "key", name);
            x += 26.0 + name.chars().count() as f64 * LETTER + 18.0;
        }
    }
}

/// A line as curves have it.
pub fn stroke(colour: &str) -> String {
    format!(r#"stroke="{colour}" stroke-width="2" stroke-linejoin="round""#)
}

/// A dashed line, for values that curves are compared with.
pub fn dashed(colour: &str) -> String {
    format!(r#"stroke="{colour}" stroke-width="1.5" stroke-dasharray="4 3""#)
}

/// Colours of series that are no transports, in order (Okabe and Ito).
pub const SERIES: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#56606b", "#b3152a",
];
/// Share of a group's width that is left empty.
const BETWEEN_GROUPS: f64 = 0.24;

/// Groups of bars, from left to right; each group has a bar, or a gap, for every series. Bars stand
/// on zero.
pub fn bars(
    size: (f64, f64),
    title: &str,
    series: &[String],
    groups: &[(String, Vec<Option<f64>>)],
) -> String {
    let values = || groups.iter().flat_map(|(_, bars)| bars.iter().flatten());
    let (low, high) = values().fold((0.0, 0.0), |(low, high): (f64, f64), value| {
        (low.min(*value), high.max(*value))
    });
    let y = Scale::linear((low * 1.05, high * 1.05), upwards(size.1));
    let mut drawing = Drawing::new(size.0, size.1);
    ruled(&mut drawing, size, (&y, title));
    let (left, right) = across(size.0);
    let width = (right - left) / groups.len().max(1) as f64;
    let thick = width * (1.0 - BETWEEN_GROUPS) / series.len().max(1) as f64;
    for (number, (name, bars)) in groups.iter().enumerate() {
        let start = left + width * (number as f64 + BETWEEN_GROUPS / 2.0);
        for ((value, colour), at) in bars.iter().zip(SERIES.iter().cycle()).zip(0_u32..) {
            let Some(value) = value else { continue };
            let x = start + thick * f64::from(at);
            let (top, foot) = (y.at(value.max(0.0)), y.at(value.min(0.0)));
            let told = format!("{name}, {}: {value:.2}", series[at as usize]);
            let size = ((thick - 1.0).max(0.5), (foot - top).max(0.5));
            drawing.area((x, top), size, &format!(r#"fill="{colour}""#), &told);
        }
        let middle = left + width * (number as f64 + 0.5);
        drawing.text((middle, size.1 - 22.0), Anchor::Middle, "tick", name);
    }
    drawing.line((left, y.at(0.0)), (right, y.at(0.0)), r#"class="axis""#);
    let entries: Vec<(String, &str)> = series.iter().cloned().zip(cycled()).collect();
    names(&mut drawing, size, &entries);
    drawing.element(title)
}

/// A curve: its name, its values in the order of x, its colour.
pub type Curve<'a> = (String, Vec<(f64, f64)>, &'a str);

/// Curves with a dot at each value.
pub fn curves(
    size: (f64, f64),
    (across_title, title): (&str, &str),
    curves: &[Curve<'_>],
) -> String {
    let of = |pick: fn(&(f64, f64)) -> f64| {
        let values = curves.iter().flat_map(|(_, points, _)| points).map(pick);
        values.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        })
    };
    let ((x_low, x_high), (low, high)) = (of(|point| point.0), of(|point| point.1));
    let room = ((high - low) * 0.06).max(f64::EPSILON);
    let mut plot = Plot::new(
        size,
        PlotAxis::linear(across_title, (x_low, x_high)),
        PlotAxis::linear(title, (low - room, high + room)),
    );
    for (name, points, colour) in curves {
        plot.curve(points, &stroke(colour));
        for point in points {
            let at = (plot.x.at(point.0), plot.y.at(point.1));
            let told = format!("{name}: {} at {}", number(point.1), number(point.0));
            plot.drawing
                .disc(at, 3.0, &format!(r#"fill="{colour}""#), &told);
        }
    }
    let entries = curves.iter();
    let entries: Vec<_> = entries
        .map(|(name, _, colour)| (name.clone(), *colour))
        .collect();
    names(&mut plot.drawing, size, &entries);
    plot.drawing.element(title)
}

fn cycled() -> impl Iterator<Item = &'static str> {
    SERIES.iter().cycle().copied()
}

/// The upright axis with its ticks and title.
fn ruled(drawing: &mut Drawing, size: (f64, f64), (scale, title): (&Scale, &str)) {
    let ((left, right), (foot, top)) = (across(size.0), upwards(size.1));
    for tick in scale.ticks(5) {
        let at = scale.at(tick);
        drawing.line((left, at), (right, at), r#"class="grid""#);
        drawing.text((left - 8.0, at + 4.0), Anchor::End, "tick", &number(tick));
    }
    drawing.upright_text((14.0, f64::midpoint(top, foot)), "title", title);
}

/// Names behind spots of their colours, in a row above the picture.
fn names(drawing: &mut Drawing, size: (f64, f64), entries: &[(String, &str)]) {
    let mut x = across(size.0).0;
    for (name, colour) in entries {
        drawing.area((x, 6.0), (11.0, 11.0), &format!(r#"fill="{colour}""#), "");
        drawing.text((x + 17.0, 16.0), Anchor::Start, "key", name);
        x += 17.0 + name.chars().count() as f64 * LETTER + 16.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_bars_are_gaps_negative_ones_hang() {
        let series = ["a".to_owned(), "b".to_owned()];
        let groups = [("one".to_owned(), vec![Some(-10.0), None])];
        let picture = bars((400.0, 200.0), "gain", &series, &groups);
        let spots = 2;
        assert_eq!(picture.matches("<rect").count(), 1 + spots, "{picture}");
        assert!(picture.contains("one, a: -10.00"), "{picture}");
    }

    #[test]
    fn every_value_of_a_curve_has_its_dot() {
        let curve = ("zero".to_owned(), vec![(0.0, 1.0), (10.0, 0.5)], SERIES[0]);
        let picture = curves((400.0, 200.0), ("loss, %", "accuracy"), &[curve]);
        assert_eq!(picture.matches("<circle").count(), 2);
    }
}
