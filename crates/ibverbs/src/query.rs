//! What a device can do: attributes, ports, GIDs, P_Keys, clocks. Not here: opening it.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr;
use std::time::SystemTime;

use feroce_verbs::{Context, GID_TABLE_LEN};
use feroce_verbs_abi as abi;

use crate::context::Description;
use crate::convert::address::PORT;
use crate::guard::{self, Failure};
use crate::{context, convert};

/// The P_Key table of every port: the default key at index 0. RoCE has no partitions.
const PKEY_DEFAULT: u16 = 0xffff;

/// Refuses what is no port of ours.
pub(crate) fn check_port(port_num: u8) -> Result<(), Failure> {
    if port_num == PORT {
        return Ok(());
    }
    Err(Failure::invalid(format!(
        "port_num is {port_num}, the device has port 1 only"
    )))
}

/// Writes the P_Key at `index` in network byte order. Returns 0 or -1.
///
/// # Safety
/// `pkey` is null or points to a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_pkey(
    context: *mut abi::ibv_context,
    port_num: u8,
    index: c_int,
    pkey: *mut abi::__be16,
) -> c_int {
    guard::minus_one("ibv_query_pkey", || {
        guard::not_null(context, "context")?;
        guard::not_null(pkey, "pkey")?;
        check_port(port_num)?;
        if index != 0 {
            return Err(Failure::invalid(format!(
                "index is {index}, the table has entry 0 only"
            )));
        }
        // SAFETY: the caller's contract, null refused.
        unsafe { pkey.write(PKEY_DEFAULT.to_be()) };
        Ok(0)
    })
}

/// The index of a P_Key in network byte order, or -1.
///
/// # Safety
/// None needed: the context is not looked into.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut abi::ibv_context,
    port_num: u8,
    pkey: abi::__be16,
) -> c_int {
    guard::minus_one("ibv_get_pkey_index", || {
        guard::not_null(context, "context")?;
        check_port(port_num)?;
        let pkey = u16::from_be(pkey);
        if pkey == PKEY_DEFAULT {
            return Ok(0);
        }
        Err(Failure::invalid(format!(
            "pkey {pkey:#06x} is not in the table: 0xffff is"
        )))
    })
}

/// `ibv_query_gid_type`: writes which RoCE the GID at `index` is for. Returns 0 or -1.
///
/// # Safety
/// `gid_type` is null or points to a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_query_gid_type(
    context: *mut abi::ibv_context,
    port_num: u8,
    index: u32,
    gid_type: *mut u32,
) -> c_int {
    guard::minus_one("ibv_query_gid_type", || {
        guard::not_null(context, "context")?;
        guard::not_null(gid_type, "type")?;
        check_port(port_num)?;
        if index as usize >= GID_TABLE_LEN {
            let reason = format!("index is {index}, the table has {GID_TABLE_LEN} entries");
            return Err(Failure::invalid(reason));
        }
        // SAFETY: the caller's contract, null refused.
        unsafe { gid_type.write(abi::IBV_GID_TYPE_SYSFS_ROCE_V2) };
        Ok(0)
    })
}

/// The basic attributes of a device.
fn device_attr(description: &Description) -> abi::ibv_device_attr {
    let limits = description.limits;
    let int = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
    let guid = u64::from_ne_bytes(description.guid);
    let atomics = c_int::from(limits.max_rd_atomic);
    let mut attr = abi::ibv_device_attr {
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: limits.max_mr_size,
        // Any power of two from 4 KiB on.
        page_size_cap: !0xfff,
        vendor_id: VENDOR_ID,
        vendor_part_id: VENDOR_PART_ID,
        hw_ver: 0,
        max_qp: int(limits.max_qp),
        max_qp_wr: int(limits.max_qp_wr),
        device_cap_flags: CAPABILITIES,
        max_sge: int(limits.max_sge),
        max_sge_rd: int(limits.max_sge),
        max_cq: int(limits.max_cq),
        max_cqe: int(limits.max_cqe),
        max_mr: int(limits.max_mr),
        max_pd: int(limits.max_pd),
        max_qp_rd_atom: atomics,
        max_res_rd_atom: atomics.saturating_mul(int(limits.max_qp)),
        max_qp_init_rd_atom: atomics,
        // They are machine instructions and atomic to processors, too (`IBV_ATOMIC_GLOB`), but
        // adapters claim the weaker, and UCX uses no atomics where it finds anything else.
        atomic_cap: abi::IBV_ATOMIC_HCA,
        max_mw: int(limits.max_mr),
        max_mcast_grp: int(limits.max_mcast_groups),
        max_mcast_qp_attach: int(limits.max_mcast_qp_attach),
        max_total_mcast_qp_attach: int(limits.max_mcast_groups)
            .saturating_mul(int(limits.max_mcast_qp_attach)),
        max_ah: int(limits.max_ah),
        max_srq: int(limits.max_srq),
        max_srq_wr: int(limits.max_srq_wr),
        max_srq_sge: int(limits.max_sge),
        max_pkeys: 1,
        local_ca_ack_delay: ACK_DELAY,
        phys_port_cnt: PORT,
        ..Default::default()
    };
    let version = env!("CARGO_PKG_VERSION").bytes();
    for (target, byte) in attr.fw_ver[..63].iter_mut().zip(version) {
        *target = byte.cast_signed();
    }
    attr
}

/// Nobody's: programs have tables of what to expect of known vendors' parts.
const VENDOR_ID: u32 = 0x00ff_ffff;
const VENDOR_PART_ID: u32 = 0;

/// How long an acknowledge may take to leave, as 4.096 µs · 2^n: about 16 ms, when the program
/// sleeps on a busy machine.
const ACK_DELAY: u8 = 12;

const CAPABILITIES: u32 = abi::IBV_DEVICE_BAD_PKEY_CNTR
    | abi::IBV_DEVICE_BAD_QKEY_CNTR
    | abi::IBV_DEVICE_CURR_QP_STATE_MOD
    | abi::IBV_DEVICE_PORT_ACTIVE_EVENT
    | abi::IBV_DEVICE_SYS_IMAGE_GUID
    | abi::IBV_DEVICE_RC_RNR_NAK_GEN
    | abi::IBV_DEVICE_SRQ_RESIZE
    | abi::IBV_DEVICE_MEM_WINDOW
    | abi::IBV_DEVICE_MEM_WINDOW_TYPE_2B
    | abi::IBV_DEVICE_XRC;

/// Bits of `device_cap_flags_ex` that verbs.h names only in the kernel's headers: FLUSH to global
/// visibility and to persistence, ATOMIC WRITE.
const CAPABILITIES_EX: u64 = 1 << 38 | 1 << 39 | 1 << 40;

/// User memory is always pageable here, for every operation.
const ODP_RC: u32 = abi::IBV_ODP_SUPPORT_SEND
    | abi::IBV_ODP_SUPPORT_RECV
    | abi::IBV_ODP_SUPPORT_WRITE
    | abi::IBV_ODP_SUPPORT_READ
    | abi::IBV_ODP_SUPPORT_ATOMIC
    | abi::IBV_ODP_SUPPORT_SRQ_RECV;
const ODP_UC: u32 =
    abi::IBV_ODP_SUPPORT_SEND | abi::IBV_ODP_SUPPORT_RECV | abi::IBV_ODP_SUPPORT_WRITE;
const ODP_UD: u32 =
    abi::IBV_ODP_SUPPORT_SEND | abi::IBV_ODP_SUPPORT_RECV | abi::IBV_ODP_SUPPORT_SRQ_RECV;

/// Completion timestamps are nanoseconds: a clock of 1,000,000 kHz.
const CLOCK_KHZ: u64 = 1_000_000;

/// # Safety
/// `context` and `device_attr` are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_device(
    context: *mut abi::ibv_context,
    device_attr: *mut abi::ibv_device_attr,
) -> c_int {
    guard::status("ibv_query_device", || {
        // SAFETY: the caller's contract.
        unsafe {
            let description = context::description(context)?;
            guard::not_null(device_attr, "device_attr")?.write(self::device_attr(&description));
        }
        Ok(())
    })
}

/// # Safety
/// `context` is null or open; `attr` has room for `attr_size` bytes.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut abi::ibv_context,
    input: *const abi::ibv_query_device_ex_input,
    attr: *mut abi::ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    guard::status("ibv_query_device_ex", || {
        // SAFETY: the caller's contract.
        if unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0) {
            return Err(Failure::invalid("comp_mask: no input is defined"));
        }
        // SAFETY: the caller's contract.
        let description = unsafe { context::description(context) }?;
        let limits = description.limits;
        let mut answer = abi::ibv_device_attr_ex {
            orig_attr: device_attr(&description),
            completion_timestamp_mask: u64::MAX,
            hca_core_clock: CLOCK_KHZ,
            device_cap_flags_ex: u64::from(CAPABILITIES) | CAPABILITIES_EX,
            max_dm_size: limits.max_dm_size,
            xrc_odp_caps: ODP_RC,
            phys_port_cnt_ex: PORT.into(),
            ..Default::default()
        };
        answer.odp_caps.general_caps =
            u64::from(abi::IBV_ODP_SUPPORT | abi::IBV_ODP_SUPPORT_IMPLICIT);
        answer.odp_caps.per_transport_caps.rc_odp_caps = ODP_RC;
        answer.odp_caps.per_transport_caps.uc_odp_caps = ODP_UC;
        answer.odp_caps.per_transport_caps.ud_odp_caps = ODP_UD;
        let size = attr_size.min(size_of_val(&answer));
        let target = guard::not_null(attr, "attr")?;
        // SAFETY: the caller's contract: room for `attr_size` bytes; older programs have less.
        unsafe { ptr::copy_nonoverlapping((&raw const answer).cast::<u8>(), target.cast(), size) };
        Ok(())
    })
}

/// The attributes of the port. RoCE has no LIDs; the P_Key table has one entry.
fn port_attr(context: &Context) -> abi::ibv_port_attr {
    let port = context.port();
    let (state, phys_state) = if port.active {
        (abi::IBV_PORT_ACTIVE, PHYS_LINK_UP)
    } else {
        (abi::IBV_PORT_DOWN, PHYS_DISABLED)
    };
    abi::ibv_port_attr {
        state,
        max_mtu: abi::IBV_MTU_4096,
        active_mtu: port.mtu as abi::ibv_mtu,
        gid_tbl_len: c_int::try_from(GID_TABLE_LEN).unwrap_or(c_int::MAX),
        port_cap_flags: abi::IBV_PORT_CM_SUP | abi::IBV_PORT_IP_BASED_GIDS,
        max_msg_sz: context.limits().max_message,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        active_width: WIDTH_4X,
        active_speed: SPEED_EDR,
        phys_state,
        link_layer: abi::IBV_LINK_LAYER_ETHERNET as u8,
        flags: abi::IBV_QPF_GRH_REQUIRED as u8,
        ..Default::default()
    }
}

/// Values that verbs.h has no names for (IBTA 14.2.5.6).
const PHYS_LINK_UP: u8 = 5;
const PHYS_DISABLED: u8 = 3;
/// Four lanes of 25 Gb/s: the order of what a software device moves over loopback.
const WIDTH_4X: u8 = 2;
const SPEED_EDR: u8 = 32;

/// # Safety
/// `context` is null or open; `port_attr` has room for `port_attr_len` bytes.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut abi::ibv_context,
    port_num: u8,
    port_attr: *mut abi::ibv_port_attr,
    port_attr_len: usize,
) -> c_int {
    guard::status("ibv_query_port", || {
        // SAFETY: the caller's contract.
        let state = unsafe { context::state(context) }?;
        check_port(port_num)?;
        let answer = self::port_attr(&state.context);
        let size = port_attr_len.min(size_of_val(&answer));
        let target = guard::not_null(port_attr, "port_attr")?;
        // SAFETY: the caller's contract: room for `port_attr_len` bytes.
        unsafe { ptr::copy_nonoverlapping((&raw const answer).cast::<u8>(), target.cast(), size) };
        Ok(())
    })
}

/// # Safety
/// `context` and `port_attr` are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_port(
    context: *mut abi::ibv_context,
    port_num: u8,
    port_attr: *mut abi::_compat_ibv_port_attr,
) -> c_int {
    // The struct of old ends before the later fields.
    // SAFETY: the caller's contract.
    unsafe {
        query_port(
            context,
            port_num,
            port_attr.cast(),
            offset_of!(abi::ibv_port_attr, flags),
        )
    }
}

/// # Safety
/// `context` and `port_speed` are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_port_speed(
    context: *mut abi::ibv_context,
    port_num: u32,
    port_speed: *mut u64,
) -> c_int {
    guard::status("ibv_query_port_speed", || {
        // SAFETY: the caller's contract.
        unsafe { context::state(context) }?;
        check_port(u8::try_from(port_num).unwrap_or(0))?;
        // In 100 Mb/s, as active_width and active_speed of the port say.
        const HUNDRED_MBPS: u64 = 1000;
        // SAFETY: the caller's contract.
        unsafe { guard::not_null(port_speed, "port_speed")?.write(HUNDRED_MBPS) };
        Ok(())
    })
}

/// # Safety
/// `context` and `gid` are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut abi::ibv_context,
    port_num: u8,
    index: c_int,
    gid: *mut abi::ibv_gid,
) -> c_int {
    guard::minus_one("ibv_query_gid", || {
        // SAFETY: the caller's contract.
        let state = unsafe { context::state(context) }?;
        check_port(port_num)?;
        let index = usize::try_from(index)
            .ok()
            .filter(|&index| index < GID_TABLE_LEN);
        let index = index.ok_or_else(|| Failure::invalid(TABLE_END))?;
        // An empty entry reads as zeros, as it does on NICs.
        let entry = state
            .context
            .gid(index)
            .map(convert::address::gid)
            .unwrap_or_default();
        // SAFETY: the caller's contract.
        unsafe { guard::not_null(gid, "gid")?.write(entry) };
        Ok(0)
    })
}

const TABLE_END: &str = "index is beyond the GID table, see gid_tbl_len";

/// An entry of the GID table in its C form.
fn gid_entry(context: &Context, index: usize) -> Option<abi::ibv_gid_entry> {
    Some(abi::ibv_gid_entry {
        gid: convert::address::gid(context.gid(index)?),
        gid_index: u32::try_from(index).ok()?,
        port_num: PORT.into(),
        gid_type: abi::IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: context.device().interface().index,
    })
}

/// # Safety
/// `context` is null or open; `entry` has room for `entry_size` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut abi::ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut abi::ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    guard::status("ibv_query_gid_ex", || {
        // SAFETY: the caller's contract.
        let state = unsafe { context::state(context) }?;
        check_port(u8::try_from(port_num).unwrap_or(0))?;
        if flags != 0 {
            return Err(Failure::unsupported(format!(
                "flags {flags:#x}: none is defined"
            )));
        }
        let index = gid_index as usize;
        if index >= GID_TABLE_LEN {
            return Err(Failure::invalid(TABLE_END));
        }
        let answer = gid_entry(&state.context, index)
            .ok_or_else(|| Failure::new(libc::ENODATA, "the GID entry is empty"))?;
        let size = entry_size.min(size_of_val(&answer));
        let target = guard::not_null(entry, "entry")?;
        // SAFETY: the caller's contract: room for `entry_size` bytes.
        unsafe { ptr::copy_nonoverlapping((&raw const answer).cast::<u8>(), target.cast(), size) };
        Ok(())
    })
}

/// # Safety
/// `context` is null or open; `entries` has room for `max_entries` of `entry_size` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut abi::ibv_context,
    entries: *mut abi::ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    guard::minus_errno("ibv_query_gid_table", || {
        // SAFETY: the caller's contract.
        let state = unsafe { context::state(context) }?;
        if flags != 0 {
            return Err(Failure::unsupported(format!(
                "flags {flags:#x}: none is defined"
            )));
        }
        let found = (0..GID_TABLE_LEN).filter_map(|index| gid_entry(&state.context, index));
        let mut count = 0;
        for answer in found {
            if count == max_entries {
                return Err(Failure::invalid(
                    "max_entries is less than the GIDs there are",
                ));
            }
            let size = entry_size.min(size_of_val(&answer));
            // SAFETY: the caller's contract; `count` is below `max_entries`.
            unsafe {
                let target = entries.cast::<u8>().add(count * entry_size);
                ptr::copy_nonoverlapping((&raw const answer).cast::<u8>(), target, size);
            }
            count += 1;
        }
        Ok(count)
    })
}

/// # Safety
/// `context` and `values` are null or point to what their types say.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut abi::ibv_context,
    values: *mut abi::ibv_values_ex,
) -> c_int {
    guard::status("ibv_query_rt_values_ex", || {
        // SAFETY: the caller's contract.
        let values = unsafe {
            context::state(context)?;
            &mut *guard::not_null(values, "values")?
        };
        if values.comp_mask & !abi::IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(Failure::unsupported(
                "only IBV_VALUES_MASK_RAW_CLOCK is offered",
            ));
        }
        if values.comp_mask & abi::IBV_VALUES_MASK_RAW_CLOCK != 0 {
            let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let time = since_1970.unwrap_or_default();
            values.raw_clock.tv_sec = time.as_secs().cast_signed();
            values.raw_clock.tv_nsec = time.subsec_nanos().into();
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    /// Not null, and nobody looks into it.
    fn context() -> *mut abi::ibv_context {
        ptr::dangling_mut()
    }

    #[test]
    fn the_default_key_is_the_only_one() {
        let mut pkey = 0;
        // SAFETY: `pkey` is a number; the context is not looked into.
        unsafe {
            assert_eq!(ibv_query_pkey(context(), 1, 0, &raw mut pkey), 0);
            assert_eq!(pkey, 0xffff);
            assert_eq!(ibv_query_pkey(context(), 1, 1, &raw mut pkey), -1);
            assert_eq!(ibv_query_pkey(context(), 2, 0, &raw mut pkey), -1);
            assert_eq!(ibv_query_pkey(ptr::null_mut(), 1, 0, &raw mut pkey), -1);
            assert_eq!(ibv_get_pkey_index(context(), 1, 0xffff), 0);
            assert_eq!(ibv_get_pkey_index(context(), 1, 0x7fff), -1);
        }
    }

    #[test]
    fn gids_are_of_roce_v2_up_to_the_end_of_the_table() {
        let mut kind = 9;
        // SAFETY: `kind` is a number; the context is not looked into.
        unsafe {
            let end = u32::try_from(GID_TABLE_LEN).unwrap();
            assert_eq!(feroce_query_gid_type(context(), 1, end, &raw mut kind), -1);
            assert_eq!(kind, 9);
            assert_eq!(
                feroce_query_gid_type(context(), 1, end - 1, &raw mut kind),
                0
            );
        }
        assert_eq!(kind, abi::IBV_GID_TYPE_SYSFS_ROCE_V2);
    }
}
