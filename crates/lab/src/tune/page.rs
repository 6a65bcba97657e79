//! The findings as a page: curves and tables in one file that loads nothing else.

use plotters::prelude::*;

use super::report::TuneReport;
use crate::error::LabError;
use crate::statistics::LONGEST_CONSIDERED;

/// Size of a picture.
const SIZE: (u32, u32) = (640, 360);
/// Lines of a picture, the best candidates first.
const LINES: usize = 6;
const COLORS: [RGBColor; LINES] = [
    RGBColor(0, 92, 175),
    RGBColor(200, 80, 0),
    RGBColor(0, 130, 80),
    RGBColor(150, 50, 150),
    RGBColor(90, 90, 90),
    RGBColor(180, 140, 0),
];

/// A curve with its name. Shape: (point) of (x, y).
type Curve = (String, Vec<(f64, f64)>);

impl TuneReport {
    /// A page with the curves, the tables and the conclusion, in one file that loads nothing else.
    /// `model` names the model in the heading.
    ///
    /// # Errors
    /// A curve cannot be drawn.
    pub fn html(&self, model: &str) -> Result<String, LabError> {
        let first = &self.costs[0];
        let mut promising: Vec<usize> = (0..self.candidates.len()).collect();
        let promise = |i: usize| first.best(i, &self.acceptance[i]).1;
        promising.sort_by(|a, b| promise(*b).total_cmp(&promise(*a)));
        promising.truncate(LINES);
        let candidate = |i: usize| self.candidates[i].name.clone();

        let over_layers = |value: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> {
            let exits = self.candidates.iter().enumerate().filter_map(|(i, c)| Some((i, c.exit?)));
            exits.map(|(i, exit)| (exit as f64, value(i))).collect()
        };
        let by_layer = vec![
            ("1st draft accepted".to_owned(), over_layers(&|i| self.acceptance[i].at(0))),
            ("2nd, after an accepted one".to_owned(), over_layers(&|i| self.acceptance[i].at(1))),
            ("cost c".to_owned(), over_layers(&|i| first.c[i])),
        ];
        let over_k: Vec<Curve> = promising
            .iter()
            .map(|i| {
                let gain = |k: usize| first.speedup(*i, &self.acceptance[*i], k);
                (candidate(*i), (1..=LONGEST_CONSIDERED).map(|k| (k as f64, gain(k))).collect())
            })
            .collect();
        let over_context: Vec<Curve> = promising
            .iter()
            .filter(|i| self.candidates[**i].path.is_some())
            .map(|i| (candidate(*i), self.costs.iter().map(|costs| (costs.context as f64, costs.c[*i])).collect()))
            .collect();
        let pictures = [
            ("Acceptance and cost over the exit layer", "exit layer", by_layer),
            ("Promised speed-up over the draft length k", "k", over_k),
            ("Cost c of a draft over the context", "positions", over_context),
        ];
        let mut body = String::new();
        for (title, axis, curves) in pictures {
            if curves.iter().all(|(_, points)| points.is_empty()) {
                continue;
            }
            body += &format!("<h2>{title}</h2>\n{}\n", picture(axis, &curves)?);
        }
        let (name, conclusion) = (escaped(model), escaped(&self.conclusion()));
        Ok(format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Speculation on {name}</title>\n<style>\n\
             body {{ font: 16px/1.5 sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff; }}\n\
             pre {{ overflow-x: auto; background: #f4f4f4; padding: 1rem; }}\nsvg {{ max-width: 100%; height: auto; }}\n</style>\n\
             <h1>Speculation on {name}</h1>\n<p><strong>{conclusion}</strong></p>\n{body}<h2>Figures</h2>\n<pre>{}</pre>\n</html>\n",
            escaped(&self.markdown(model))
        ))
    }
}

/// Curves as an SVG picture.
fn picture(axis: &str, curves: &[Curve]) -> Result<String, LabError> {
    let points = || curves.iter().flat_map(|(_, points)| points);
    let low = points().map(|p| p.0).fold(f64::INFINITY, f64::min);
    let high = points().map(|p| p.0).fold(low + 1.0, f64::max);
    let top = points().map(|p| p.1).filter(|y| y.is_finite()).fold(1.0, f64::max) * 1.05;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let failed = |e: &dyn std::fmt::Display| LabError::Drawing { why: e.to_string() };
        area.fill(&WHITE).map_err(|e| failed(&e))?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(44)
            .build_cartesian_2d(low..high, 0.0..top)
            .map_err(|e| failed(&e))?;
        chart.configure_mesh().x_desc(axis).light_line_style(TRANSPARENT).draw().map_err(|e| failed(&e))?;
        for ((name, points), color) in curves.iter().zip(COLORS.iter().cycle()) {
            let style = color.stroke_width(2);
            let line = LineSeries::new(points.iter().copied().filter(|p| p.1.is_finite()), style).point_size(3);
            let drawn = chart.draw_series(line).map_err(|e| failed(&e))?;
            drawn.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.2))
            .draw()
            .map_err(|e| failed(&e))?;
        area.present().map_err(|e| failed(&e))?;
    }
    Ok(svg)
}

/// A text inside HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
