//! Progress for people.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows progress bars on a terminal, or nothing.
#[derive(Debug)]
pub(crate) struct Progress {
    on: bool,
}

/// The progress of one phase. It disappears when dropped.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
}

impl Progress {
    pub fn new(on: bool) -> Self {
        Progress { on }
    }

    /// A bar for a phase of `total` steps (bytes or tasks); 0 where the total is not known.
    pub fn start(&self, name: &str, total: u64) -> Bar {
        if !self.on {
            return Bar {
                bar: ProgressBar::hidden(),
            };
        }
        let (bar, template) = if total == 0 {
            (
                ProgressBar::no_length(),
                "{msg:12} {spinner} {bytes} {bytes_per_sec}",
            )
        } else if total < 1 << 20 {
            (
                ProgressBar::new(total),
                "{msg:12} {wide_bar} {percent:>3} % ETA {eta}",
            )
        } else {
            (
                ProgressBar::new(total),
                "{msg:12} {wide_bar} {percent:>3} % {bytes_per_sec} ETA {eta}",
            )
        };
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(4));
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(name.to_owned());
        bar.enable_steady_tick(Duration::from_millis(250));
        Bar { bar }
    }
}

impl Bar {
    pub fn advance(&self, steps: u64) {
        self.bar.inc(steps);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
