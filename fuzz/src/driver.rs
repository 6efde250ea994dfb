//! A fuzzer for machines without cargo-fuzz: seeded mutation, kept where behaviour is new.
//!
//! It sees no coverage, only the features that targets return; cargo-fuzz finds more. The same
//! seed gives the same inputs in the same order on every machine, so a run that dies without a
//! word can be repeated as well.

use crate::{Features, Target};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long and from where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names the sequence of inputs.
    pub seed: u64,
    /// When to stop.
    pub time: Duration,
    /// After how many inputs to stop at the latest.
    pub runs: u64,
    /// The folder for failing inputs.
    pub failures: PathBuf,
}

/// What a search without a failure did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Inputs tried.
    pub runs: u64,
    /// Inputs kept because they behaved in a new way.
    pub kept: usize,
}

/// An input that a target does not bear.
#[derive(Debug)]
pub struct Failure {
    /// What the target said when it panicked.
    pub message: String,
    /// The input, made shorter.
    pub input: Vec<u8>,
    /// After how many inputs.
    pub runs: u64,
}

/// Searches for an input that makes `target` panic.
///
/// # Errors
/// The [`Failure`] it found. An input that takes more than ten seconds ends the process.
pub fn search(target: &Target, options: &Options) -> Result<Tally, Box<Failure>> {
    let guarded = Guarded::new(target, options);
    let mut prng = Prng::new(options.seed);
    let mut corpus = (target.seeds)();
    let mut seen = BTreeSet::new();
    let mut runs = 0;
    let start = Instant::now();
    for seed in corpus.clone() {
        runs += 1;
        seen.extend(guarded.run(&seed, runs)?.iter());
    }
    while runs < options.runs && start.elapsed() < options.time {
        let input = mutated(&corpus, target.len_max, &mut prng);
        runs += 1;
        let before = seen.len();
        seen.extend(guarded.run(&input, runs)?.iter());
        if seen.len() > before && corpus.len() < CORPUS_MAX {
            corpus.push(input);
        }
    }
    Ok(Tally {
        runs,
        kept: corpus.len(),
    })
}

/// Inputs kept at most.
const CORPUS_MAX: usize = 4096;
/// How long one input may take.
const RUN_TIME_MAX: Duration = Duration::from_secs(10);
/// Inputs tried to make a failing one shorter.
const SHRINK_RUNS_MAX: usize = 2000;

/// Runs a target with its panics caught and its time watched.
struct Guarded<'t> {
    target: &'t Target,
    current: Arc<Mutex<Current>>,
}

/// The input that is being run.
struct Current {
    started: Option<Instant>,
    input: Vec<u8>,
    /// The driver is done.
    over: bool,
}

impl<'t> Guarded<'t> {
    fn new(target: &'t Target, options: &Options) -> Self {
        let current = Arc::new(Mutex::new(Current {
            started: None,
            input: Vec::new(),
            over: false,
        }));
        let watched = Arc::clone(&current);
        let (target_name, failures) = (target.name, options.failures.clone());
        thread::spawn(move || watch(&watched, target_name, &failures));
        Self { target, current }
    }

    fn run(&self, input: &[u8], runs: u64) -> Result<Features, Box<Failure>> {
        self.attempt(input).map_err(|message| {
            let (input, message) = self.shrink(input.to_vec(), message);
            Box::new(Failure {
                message,
                input,
                runs,
            })
        })
    }

    fn attempt(&self, input: &[u8]) -> Result<Features, String> {
        self.set_current(Some(input));
        let result = catch(|| (self.target.run)(input));
        self.set_current(None);
        result
    }

    fn set_current(&self, input: Option<&[u8]>) {
        let mut current = lock(&self.current);
        current.started = input.map(|_| Instant::now());
        if let Some(input) = input {
            current.input.clear();
            current.input.extend(input);
        }
    }

    /// Takes pieces out of a failing input as long as it fails.
    fn shrink(&self, mut input: Vec<u8>, mut message: String) -> (Vec<u8>, String) {
        let mut runs = 0;
        let mut piece = input.len().div_ceil(2);
        while piece > 0 {
            let mut at = 0;
            while at < input.len() && runs < SHRINK_RUNS_MAX {
                let end = (at + piece).min(input.len());
                let shorter = [&input[..at], &input[end..]].concat();
                runs += 1;
                match self.attempt(&shorter) {
                    Ok(_) => at = end,
                    Err(said) => (input, message) = (shorter, said),
                }
            }
            piece /= 2;
        }
        (input, message)
    }
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        lock(&self.current).over = true;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process when an input takes too long.
fn watch(current: &Mutex<Current>, target: &str, failures: &Path) {
    loop {
        thread::sleep(Duration::from_millis(200));
        let current = lock(current);
        if current.over {
            return;
        }
        if current
            .started
            .is_some_and(|started| started.elapsed() > RUN_TIME_MAX)
        {
            let message = format!("an input takes more than {RUN_TIME_MAX:?}");
            eprintln!("{}", report(target, &message, &current.input, failures));
            process::exit(1);
        }
    }
}

/// Runs `f`; a panic becomes its message. Panics of one thread only may be caught at a time.
fn catch<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    static MESSAGE: Mutex<String> = Mutex::new(String::new());
    static HOOK: std::sync::Once = std::sync::Once::new();
    thread_local! {
        static CATCHING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    HOOK.call_once(|| {
        let default = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if CATCHING.get() {
                *lock(&MESSAGE) = info.to_string();
            } else {
                default(info);
            }
        }));
    });
    CATCHING.set(true);
    let result = panic::catch_unwind(panic::AssertUnwindSafe(f));
    CATCHING.set(false);
    result.map_err(|_| std::mem::take(&mut *lock(&MESSAGE)))
}

/// Writes a failing input to a file and tells how to run it again.
pub fn report(target: &str, message: &str, input: &[u8], failures: &Path) -> String {
    let path = failures.join(format!("{target}-{:016x}.bin", fingerprint(input)));
    let mut report = format!("{target} FAILED: {message}\n");
    let written = fs::create_dir_all(failures).and_then(|()| fs::write(&path, input));
    // To a String: cannot fail.
    let _ = match written {
        Ok(()) => write!(
            report,
            "replay: cargo xtask fuzz --replay {} {target}",
            path.display()
        ),
        Err(error) => write!(
            report,
            "{} cannot be written: {error}; the input is {input:02x?}",
            path.display()
        ),
    };
    report
}

/// FNV-1a, for the names of files.
fn fingerprint(input: &[u8]) -> u64 {
    input.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A new input out of one or two old ones.
fn mutated(corpus: &[Vec<u8>], len_max: usize, prng: &mut Prng) -> Vec<u8> {
    let mut input = pick(corpus, prng).cloned().unwrap_or_default();
    if prng.below(8) == 0 {
        let other = pick(corpus, prng).cloned().unwrap_or_default();
        input.truncate(prng.below(input.len() + 1));
        input.extend(&other[prng.below(other.len() + 1)..]);
    }
    for _ in 0..1 << prng.below(5) {
        mutate(&mut input, prng);
    }
    input.truncate(len_max);
    input
}

fn pick<'c, T>(choices: &'c [T], prng: &mut Prng) -> Option<&'c T> {
    choices.get(prng.below(choices.len().max(1)))
}

/// One small change.
fn mutate(input: &mut Vec<u8>, prng: &mut Prng) {
    let at = prng.below(input.len() + 1);
    let len = (1 << prng.below(8)).min(input.len() - at);
    match prng.below(9) {
        0 | 1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << prng.below(8);
            }
        }
        2 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = prng.next().to_le_bytes()[0];
            }
        }
        3 => {
            // A number at a border, in either byte order.
            let number = BORDERS[prng.below(BORDERS.len())];
            let width = 1 << prng.below(4);
            let bytes = if prng.below(2) == 0 {
                number.to_be_bytes()[8 - width..].to_vec()
            } else {
                number.to_le_bytes()[..width].to_vec()
            };
            for (target, byte) in input[at..].iter_mut().zip(bytes) {
                *target = byte;
            }
        }
        4 => {
            if let Some(byte) = input.get_mut(at) {
                let step = u8::try_from(prng.below(9)).unwrap_or_default();
                *byte = byte.wrapping_add(step).wrapping_sub(4);
            }
        }
        5 => drop(input.drain(at..at + len)),
        6 => {
            let again = input[at..at + len].to_vec();
            input.splice(at..at, again);
        }
        7 => {
            let random: Vec<u8> = (0..1 << prng.below(6))
                .map(|_| prng.next().to_le_bytes()[0])
                .collect();
            input.splice(at..at, random);
        }
        _ => input.truncate(at),
    }
}

/// Numbers where arithmetic turns.
const BORDERS: [u64; 12] = [
    0,
    1,
    3,
    0x7f,
    0xff,
    0x1000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x00ff_ffff,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
];

/// xoshiro256++ (Blackman and Vigna), seeded by splitmix64.
struct Prng([u64; 4]);

impl Prng {
    fn new(seed: u64) -> Self {
        let mut state = seed;
        Self([(); 4].map(|()| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        }))
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Below `limit`, which is not 0; the bias of the remainder does not matter here.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
