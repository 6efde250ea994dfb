//! One line of counters per device and process, for whoever wants proof that bytes went through.

use crate::device::Device;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

static DEVICES: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());

/// Access to the devices that are to be reported on.
pub(crate) type ReportsGuard = MutexGuard<'static, Vec<Weak<Device>>>;

/// Waits for access to the devices that are to be reported on.
pub(crate) fn reports() -> ReportsGuard {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers a device for [`before_exit`].
pub(crate) fn register(device: &Arc<Device>) {
    let mut devices = reports();
    devices.retain(|device| device.strong_count() > 0);
    devices.push(Arc::downgrade(device));
}

/// For programs that end without closing their devices: sends what peers still wait for, and
/// writes the counters as `FEROCE_STATS` asks.
pub fn before_exit() {
    let devices = std::mem::take(&mut *reports());
    for device in devices.iter().filter_map(Weak::upgrade) {
        device.send_acknowledges();
        report(&device);
    }
}

/// Writes one device's counters; only the first call for a device does.
pub(crate) fn report(device: &Device) {
    if device.take_report() {
        feroce_obs::statistics::append(device.name(), &device.named_counters());
    }
}
