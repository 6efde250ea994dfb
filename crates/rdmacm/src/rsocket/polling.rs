//! `rpoll` and `rselect`: rsockets beside ordinary descriptors.
//!
//! Read first: poll(2) and select(2), whose results these are.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::options::defaults;
use super::sys::{self, Bell};
use super::table::{self, Socket};
use super::wait;
use crate::guard::Failure;

/// Most descriptors of one call, as many as a process may have open on the largest systems.
const DESCRIPTORS_MAX: usize = 1 << 20;

/// Waits until a descriptor of `fds` has what is asked of it: how many have. `until`: the time at
/// which it gives up; `None`: never.
pub(crate) fn poll(fds: &mut [libc::pollfd], until: Option<Instant>) -> Result<c_int, Failure> {
    if fds.len() > DESCRIPTORS_MAX {
        return Err(Failure::invalid("more descriptors than there can be"));
    }
    let sockets: Vec<Option<Socket>> = fds.iter().map(|entry| table::find_any(entry.fd)).collect();
    if sockets.iter().all(Option::is_none) {
        let mut none = Vec::new();
        return ordinary(fds, &sockets, &mut none, until);
    }
    let spin_until = Instant::now() + defaults().polling;
    loop {
        let ready = look(fds, &sockets)?;
        let now = Instant::now();
        if ready > 0 || until.is_some_and(|until| until <= now) {
            return Ok(ready);
        }
        if now >= spin_until {
            break;
        }
        std::hint::spin_loop();
    }
    let bell = wait::bell()?;
    sleep(fds, &sockets, until, &bell)
}

/// Looks without waiting.
fn look(fds: &mut [libc::pollfd], sockets: &[Option<Socket>]) -> Result<c_int, Failure> {
    let mut ready = 0;
    for (entry, socket) in fds.iter_mut().zip(sockets) {
        if let Some(socket) = socket {
            entry.revents = socket.events(entry.events);
            ready += c_int::from(entry.revents != 0);
        }
    }
    if sockets.iter().any(Option::is_none) {
        ready += ordinary(fds, sockets, &mut Vec::new(), Some(Instant::now()))?;
    }
    Ok(ready)
}

fn sleep(
    fds: &mut [libc::pollfd],
    sockets: &[Option<Socket>],
    until: Option<Instant>,
    bell: &Arc<Bell>,
) -> Result<c_int, Failure> {
    loop {
        let mut more = vec![sys::pollfd(bell.fd(), libc::POLLIN)];
        for socket in sockets.iter().flatten() {
            socket.begin_wait(bell, &mut more);
        }
        // What came before the device was told to tell.
        let ready = look(fds, sockets);
        let waited = match ready {
            Ok(0) => {
                let next = Instant::now() + defaults().wake_up;
                let next = until.map_or(next, |until| until.min(next));
                ordinary(fds, sockets, &mut more, Some(next))
            }
            other => other,
        };
        for socket in sockets.iter().flatten() {
            socket.end_wait(bell);
        }
        bell.hush();
        waited?;
        let ready = look(fds, sockets)?;
        let is_late = until.is_some_and(|until| until <= Instant::now());
        if ready > 0 || is_late {
            return Ok(ready);
        }
    }
}

/// Polls the descriptors that are no rsockets, and `more`: how many of the former are ready.
fn ordinary(
    fds: &mut [libc::pollfd],
    sockets: &[Option<Socket>],
    more: &mut Vec<libc::pollfd>,
    until: Option<Instant>,
) -> Result<c_int, Failure> {
    let own = more.len();
    for (entry, socket) in fds.iter_mut().zip(sockets) {
        if socket.is_none() {
            entry.revents = 0;
            more.push(*entry);
        }
    }
    sys::poll(more, until)?;
    let mut ready = 0;
    let mut results = more[own..].iter();
    for (entry, socket) in fds.iter_mut().zip(sockets) {
        if socket.is_none()
            && let Some(result) = results.next()
        {
            entry.revents = result.revents;
            ready += c_int::from(result.revents != 0);
        }
    }
    more.truncate(own);
    Ok(ready)
}

/// The end of a wait of so many milliseconds; negative: none.
pub(crate) fn deadline(milliseconds: c_int) -> Option<Instant> {
    let milliseconds = u64::try_from(milliseconds).ok()?;
    Some(Instant::now() + Duration::from_millis(milliseconds))
}

/// The sets of `select`, as arrays of words with a bit per descriptor.
#[derive(Debug, Default)]
pub(crate) struct Sets<'a> {
    /// Those to be read, written, or watched for urgent data; a null set is empty.
    pub(crate) read: Option<&'a mut libc::fd_set>,
    pub(crate) write: Option<&'a mut libc::fd_set>,
    pub(crate) except: Option<&'a mut libc::fd_set>,
}

/// `rselect` for descriptors below `count`.
pub(crate) fn select(
    count: c_int,
    sets: Sets<'_>,
    until: Option<Instant>,
) -> Result<c_int, Failure> {
    let count = usize::try_from(count)
        .ok()
        .filter(|&count| count <= libc::FD_SETSIZE)
        .ok_or_else(|| Failure::invalid("more descriptors than a set has"))?;
    let kinds = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    let mut sets = [sets.read, sets.write, sets.except];
    let mut fds = Vec::new();
    // Lossless: below FD_SETSIZE.
    for fd in 0..count as c_int {
        let mut events = 0;
        for (set, kind) in sets.iter().zip(kinds) {
            if set.as_deref().is_some_and(|set| has(set, fd)) {
                events |= kind;
            }
        }
        if events != 0 {
            fds.push(sys::pollfd(fd, events));
        }
    }
    poll(&mut fds, until)?;
    if fds.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        return Err(Failure::new(libc::EBADF, "a descriptor is not open"));
    }
    let mut ready = 0;
    for (set, kind) in sets.iter_mut().zip(kinds) {
        let Some(set) = set else {
            continue;
        };
        // SAFETY: a set.
        unsafe { libc::FD_ZERO(&raw mut **set) };
        for entry in &fds {
            if entry.events & kind != 0 && is_ready(entry.revents, kind) {
                // SAFETY: as above.
                unsafe { libc::FD_SET(entry.fd, &raw mut **set) };
                ready += 1;
            }
        }
    }
    Ok(ready)
}

fn has(set: &libc::fd_set, fd: c_int) -> bool {
    // SAFETY: a set, and a descriptor that is in its range.
    unsafe { libc::FD_ISSET(fd, set) }
}

/// As select(2) maps the events of poll(2).
fn is_ready(events: i16, kind: i16) -> bool {
    let counts = match kind {
        libc::POLLIN => libc::POLLIN | libc::POLLHUP | libc::POLLERR,
        libc::POLLOUT => libc::POLLOUT | libc::POLLERR,
        _ => libc::POLLPRI,
    };
    events & counts != 0
}
