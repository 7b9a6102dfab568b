//! CPU time and memory of this process, as the Linux kernel counts them.
//!
//! Wall time on a shared machine measures the neighbours; the time the kernel let this thread run does not.

use std::{error::Error, fs, thread};

/// CPU seconds this thread has used, exact to about a microsecond.
///
/// The kernel brings the figure up to date when it reschedules, so the thread offers to be.
pub fn seconds() -> Result<f64, Box<dyn Error>> {
    thread::yield_now();
    let line = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: u64 = line.split_whitespace().next().ok_or("empty schedstat")?.parse()?;
    Ok(nanoseconds as f64 * 1e-9)
}

/// The largest resident memory of this process so far, in megabytes of 10⁶ bytes.
pub fn peak_megabytes() -> Result<f64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes * 1024.0 / 1e6)
}

/// The median CPU seconds of a call, its last answer and the repetitions.
///
/// One call goes unmeasured first. A short call is repeated 15 to 101 times, one of above 0.1 s
/// 3 times.
pub fn median<T>(
    mut call: impl FnMut() -> Result<T, Box<dyn Error>>,
) -> Result<(f64, T, usize), Box<dyn Error>> {
    let mut timed = || -> Result<(f64, T), Box<dyn Error>> {
        let start = seconds()?;
        let answer = call()?;
        Ok((seconds()? - start, answer))
    };
    let (first, mut answer) = timed()?;
    let repetitions = if first > 0.1 { 3 } else { ((0.3 / first.max(1e-6)) as usize).clamp(15, 101) | 1 };
    let mut times = Vec::with_capacity(repetitions);
    for _ in 0..repetitions {
        let (time, next) = timed()?;
        times.push(time);
        answer = next;
    }
    times.sort_by(f64::total_cmp);
    Ok((times[repetitions / 2], answer, repetitions))
}
