//! Axes, curves, bars and legends: what all pictures with two axes have in common.

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
        "ndp" => "#009e73",
        "roce" => "#cc79a7",
        "pfabric" => "#e69f00",
        _ => "#56606b",
    }
}

/// A picture with two axes.
pub struct Plot {
    /// The picture, for what is no curve.
    pub drawing: Drawing,
    x: Scale,
    y: Scale,
    size: (f64, f64),
}

/// What is along an axis.
pub struct Axis<'a> {
    /// What its numbers are, with their unit.
    pub title: &'a str,
    /// From numbers to pixels.
    pub scale: Scale,
}

/// Pixels that an axis of a picture of this width covers.
pub fn across(width: f64) -> (f64, f64) {
    (MARGINS.0, width - MARGINS.1)
}

/// Pixels that an axis of a picture of this height covers, from its foot up.
pub fn upwards(height: f64) -> (f64, f64) {
    (height - MARGINS.3, MARGINS.2)
}

impl Plot {
    /// An empty plot: its axes with their ticks and titles.
    pub fn new(size: (f64, f64), x: Axis<'_>, y: Axis<'_>) -> Self {
        let mut drawing = Drawing::new(size.0, size.1);
        let ((left, right), (foot, top)) = (across(size.0), upwards(size.1));
        for tick in y.scale.ticks(5) {
            let at = y.scale.at(tick);
            drawing.line((left, at), (right, at), r#"class="grid""#);
            drawing.text((left - 8.0, at + 4.0), Anchor::End, "tick", &number(tick));
        }
        for tick in x.scale.ticks(6) {
            let at = x.scale.at(tick);
            drawing.line((at, foot), (at, foot + 4.0), r#"class="axis""#);
            drawing.text((at, foot + 18.0), Anchor::Middle, "tick", &number(tick));
        }
        drawing.line((left, foot), (right, foot), r#"class="axis""#);
        let middle = f64::midpoint(left, right);
        drawing.text((middle, size.1 - 6.0), Anchor::Middle, "title", x.title);
        drawing.upright_text((14.0, f64::midpoint(top, foot)), "title", y.title);
        Self {
            drawing,
            x: x.scale,
            y: y.scale,
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

/// A line for what curves are compared with.
pub fn dashed(colour: &str) -> String {
    format!(r#"stroke="{colour}" stroke-width="1.5" stroke-dasharray="4 3""#)
}
