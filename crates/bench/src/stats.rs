//! The little statistics that a handful of repeats allows.

/// The middle value, or the mean of the two in the middle; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Half the distance between the smallest and the largest value, relative to the median: the band in which a median may
/// lie by chance. `None` for fewer than two values or a median of zero.
pub fn noise_band(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    if values.len() < 2 || middle <= 0.0 {
        return None;
    }
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some((high - low) / 2.0 / middle)
}

/// The exponent `b` and factor `a` of `y = a * x^b` fitted by least squares on logarithms. `None` for fewer than two distinct `x` or
/// values that are not positive.
pub fn power_law(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    if points.iter().any(|&(x, y)| x <= 0.0 || y <= 0.0) {
        return None;
    }
    let logs: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let mean_x = logs.iter().map(|&(x, _)| x).sum::<f64>() / count;
    let mean_y = logs.iter().map(|&(_, y)| y).sum::<f64>() / count;
    let spread: f64 = logs.iter().map(|&(x, _)| (x - mean_x).powi(2)).sum();
    if logs.len() < 2 || spread < 1e-12 {
        return None;
    }
    let slope = logs
        .iter()
        .map(|&(x, y)| (x - mean_x) * (y - mean_y))
        .sum::<f64>()
        / spread;
    Some((slope, (mean_y - slope * mean_x).exp()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_bands() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(noise_band(&[1.0]), None);
        assert!((noise_band(&[0.9, 1.0, 1.1]).unwrap() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn exponents_of_known_laws_are_found() {
        let (exponent, factor) = power_law(&[(80.0, 160.0), (500.0, 1000.0), (2500.0, 5000.0)]).unwrap();
        assert!((exponent - 1.0).abs() < 1e-9 && (factor - 2.0).abs() < 1e-9);
        let (exponent, _) = power_law(&[(1.0, 3.0), (4.0, 6.0)]).unwrap();
        assert!((exponent - 0.5).abs() < 1e-9);
        assert_eq!(power_law(&[(1.0, 3.0), (1.0, 4.0)]), None);
        assert_eq!(power_law(&[(1.0, 0.0), (2.0, 4.0)]), None);
    }
}
