//! Objects of a real device, the loopback one, used by the calls that programs make. The data path
//! has its judges among stock programs; here is what those seldom do: sharing, refusals, forks.

use std::ffi::c_int;
use std::ptr;

use feroce_verbs_abi as abi;

use crate::fork::tests::in_a_child;
use crate::share::identify;
use crate::{cq, device, dm, mr, mw, pd, query};

const LOCAL_WRITE: u32 = abi::IBV_ACCESS_LOCAL_WRITE;

/// An open context of `roce_lo`; `None`, loudly, where that device does not exist.
fn open() -> Option<*mut abi::ibv_context> {
    // SAFETY: the list ends with null; devices live as long as the process.
    let found = unsafe {
        let list = device::ibv_get_device_list(ptr::null_mut());
        let mut at = list;
        while !(*at).is_null() && device_name(*at) != "roce_lo" {
            at = at.add(1);
        }
        let found = *at;
        device::ibv_free_device_list(list);
        found
    };
    if found.is_null() {
        eprintln!("SKIPPED: there is no device roce_lo here");
        return None;
    }
    // SAFETY: a device of the list.
    let context = unsafe { device::ibv_open_device(found) };
    assert!(!context.is_null(), "{}", last_error());
    Some(context)
}

fn device_name(device: *mut abi::ibv_device) -> String {
    // SAFETY: a device of a list; its name is a C string.
    unsafe { std::ffi::CStr::from_ptr(device::ibv_get_device_name(device)) }
        .to_string_lossy()
        .into_owned()
}

fn last_error() -> std::io::Error {
    std::io::Error::last_os_error()
}

fn errno() -> c_int {
    last_error().raw_os_error().unwrap()
}

#[test]
fn contexts_of_one_descriptor_share_domains_regions_and_device_memory() {
    let Some(context) = open() else { return };
    let mut bytes = [0_u8; 64];
    // SAFETY: live objects throughout, in the order in which they need each other.
    unsafe {
        let domain = pd::ibv_alloc_pd(context);
        let region = mr::ibv_reg_mr(
            domain,
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            LOCAL_WRITE.cast_signed(),
        );
        let mut attr = abi::ibv_alloc_dm_attr {
            length: 64,
            ..Default::default()
        };
        let memory = dm::alloc_dm(context, &raw mut attr);
        let to_dm = (*memory).memcpy_to_dm.unwrap();
        assert_eq!(to_dm(memory, 8, b"feroce!!".as_ptr().cast(), 8), 0);

        let other = device::ibv_import_device(libc::dup((*context).cmd_fd));
        assert!(!other.is_null(), "{}", last_error());
        let other_domain = pd::ibv_import_pd(other, (*domain).handle);
        let other_region = mr::ibv_import_mr(other_domain, (*region).handle);
        let other_memory = dm::ibv_import_dm(other, (*memory).handle);
        assert_eq!((*other_region).rkey, (*region).rkey);
        assert_eq!(
            ((*other_region).length, (*other_region).addr),
            (64, ptr::null_mut())
        );
        let mut seen = [0_u8; 8];
        let from_dm = (*other_memory).memcpy_from_dm.unwrap();
        assert_eq!(from_dm(seen.as_mut_ptr().cast(), other_memory, 8, 8), 0);
        assert_eq!(&seen, b"feroce!!");

        // Whichever context destroys an object, the other only lets go of it.
        assert_eq!(mr::ibv_dereg_mr(other_region), 0);
        assert_eq!(mr::ibv_dereg_mr(region), libc::EINVAL);
        mr::ibv_unimport_mr(region);
        assert_eq!(dm::free_dm(memory), 0);
        dm::ibv_unimport_dm(other_memory);
        assert!(dm::ibv_import_dm(other, 1 << 30).is_null());
        assert_eq!(errno(), libc::ENOENT);
        assert_eq!(pd::ibv_dealloc_pd(domain), 0);
        pd::ibv_unimport_pd(other_domain);
        assert_eq!(device::ibv_close_device(context), 0);
        assert_eq!(device::ibv_close_device(other), 0);
    }
}

#[test]
fn what_is_in_use_is_not_given_back() {
    let Some(context) = open() else { return };
    // SAFETY: live objects throughout, in the order in which they need each other.
    unsafe {
        let base = pd::ibv_alloc_pd(context);
        let mut promise = abi::ibv_td_init_attr { comp_mask: 0 };
        let thread = pd::alloc_td(context, &raw mut promise);
        let mut attr = abi::ibv_parent_domain_init_attr {
            pd: base,
            td: thread,
            ..Default::default()
        };
        let parent = pd::alloc_parent_domain(context, &raw mut attr);
        assert!(!parent.is_null(), "{}", last_error());
        assert_eq!(pd::ibv_dealloc_pd(base), libc::EBUSY);
        assert_eq!(pd::dealloc_td(thread), libc::EBUSY);

        let mut size = abi::ibv_alloc_dm_attr {
            length: 4096,
            ..Default::default()
        };
        let memory = dm::alloc_dm(context, &raw mut size);
        let access = LOCAL_WRITE | abi::IBV_ACCESS_ZERO_BASED;
        assert!(mr::reg_dm_mr(parent, memory, 0, 4100, access).is_null());
        assert!(mr::reg_dm_mr(parent, memory, 0, 64, LOCAL_WRITE).is_null());
        let region = mr::reg_dm_mr(parent, memory, 1024, 64, access);
        assert!(!region.is_null(), "{}", last_error());
        assert_eq!(dm::free_dm(memory), libc::EBUSY);
        assert_eq!(pd::ibv_dealloc_pd(parent), libc::EBUSY);
        assert_eq!(mr::ibv_dereg_mr(region), 0);
        assert_eq!(dm::free_dm(memory), 0);
        assert_eq!(pd::ibv_dealloc_pd(parent), 0);
        assert_eq!(pd::dealloc_td(thread), 0);
        assert_eq!(pd::ibv_dealloc_pd(base), 0);
        assert_eq!(device::ibv_close_device(context), 0);
    }
}

#[test]
fn advice_is_checked_before_it_is_followed() {
    let Some(context) = open() else { return };
    let mut bytes = vec![0_u8; 8192];
    // SAFETY: live objects throughout; `bytes` outlives its region.
    unsafe {
        let domain = pd::ibv_alloc_pd(context);
        let stranger = pd::ibv_alloc_pd(context);
        let address = bytes.as_mut_ptr();
        let region = mr::ibv_reg_mr(domain, address.cast(), bytes.len(), 0);
        let advise = |domain, advice, flags, length, lkey| {
            let mut sge = abi::ibv_sge {
                addr: address as u64,
                length,
                lkey,
            };
            mr::advise_mr(domain, advice, flags, &raw mut sge, 1)
        };
        let read = abi::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH;
        let write = abi::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
        let lkey = (*region).lkey;
        assert_eq!(advise(domain, read, 1, 8192, lkey), 0);
        assert_eq!(advise(domain, read, 0, 8192, lkey), 0);
        assert_eq!(advise(domain, write, 1, 8192, lkey), libc::EPERM);
        assert_eq!(advise(stranger, read, 1, 8192, lkey), libc::EPERM);
        assert_eq!(advise(domain, read, 0, 8193, lkey), libc::EFAULT);
        assert_eq!(advise(domain, read, 1, 8192, lkey ^ 1), libc::ENOENT);
        assert_eq!(advise(domain, 77, 1, 8192, lkey), libc::ENOTSUP);
        assert_eq!(advise(domain, read, 6, 8192, lkey), libc::EINVAL);
        let null = mr::alloc_null_mr(domain);
        assert!(!null.is_null() && (*null).lkey != 0);
        assert_eq!(mr::ibv_dereg_mr(null), 0);
        assert_eq!(mr::ibv_dereg_mr(region), 0);
        assert_eq!(pd::ibv_dealloc_pd(stranger), 0);
        assert_eq!(pd::ibv_dealloc_pd(domain), 0);
        assert_eq!(device::ibv_close_device(context), 0);
    }
}

#[test]
fn windows_hold_their_domain() {
    let Some(context) = open() else { return };
    // SAFETY: live objects throughout.
    unsafe {
        let domain = pd::ibv_alloc_pd(context);
        assert!(mw::alloc_mw(domain, 3).is_null());
        assert_eq!(errno(), libc::EINVAL);
        let window = mw::alloc_mw(domain, abi::IBV_MW_TYPE_2);
        assert_eq!((*window).type_, abi::IBV_MW_TYPE_2);
        assert_eq!(pd::ibv_dealloc_pd(domain), libc::EBUSY);
        assert_eq!(mw::dealloc_mw(window), 0);
        assert_eq!(pd::ibv_dealloc_pd(domain), 0);
        assert_eq!(device::ibv_close_device(context), 0);
    }
}

#[test]
fn moderation_can_be_turned_off_only() {
    let Some(context) = open() else { return };
    // SAFETY: live objects throughout.
    unsafe {
        let queue = cq::ibv_create_cq(context, 4, ptr::null_mut(), ptr::null_mut(), 0);
        let modify = |cq_count, cq_period| {
            let mut attr = abi::ibv_modify_cq_attr {
                attr_mask: abi::IBV_CQ_ATTR_MODERATE,
                moderate: abi::ibv_moderate_cq {
                    cq_count,
                    cq_period,
                },
            };
            cq::modify_cq(queue, &raw mut attr)
        };
        assert_eq!(modify(1, 0), 0);
        assert_eq!(modify(8, 0), libc::EOPNOTSUPP);
        assert_eq!(modify(0, 100), libc::EOPNOTSUPP);
        assert_eq!(cq::ibv_destroy_cq(queue), 0);
        assert_eq!(device::ibv_close_device(context), 0);
    }
}

#[test]
fn a_child_has_a_device_of_its_own_and_the_parent_keeps_its() {
    let Some(context) = open() else { return };
    // SAFETY: live objects throughout.
    unsafe {
        let domain = pd::ibv_alloc_pd(context);
        let forking = feroce_verbs::before_fork();
        let sockets: Vec<_> = forking
            .sockets()
            .iter()
            .map(|&fd| (fd, identify(fd).unwrap()))
            .collect();
        forking.in_parent();
        assert!(
            sockets.len() >= 3,
            "for one address, two and that of the slot"
        );
        let child = || {
            // Another test may have closed one in the meantime; none of them may be open here.
            let free = sockets
                .iter()
                .all(|(fd, file)| identify(*fd).ok().as_ref() != Some(file));
            let mut attr = abi::ibv_device_attr::default();
            let refused = device::ibv_import_device((*context).cmd_fd).is_null()
                && pd::ibv_alloc_pd(context).is_null()
                && mr::alloc_null_mr(domain).is_null()
                && errno() == libc::EPERM;
            let Some(own) = open() else { return false };
            let own_domain = pd::ibv_alloc_pd(own);
            // What needs no part of the parent's device works (pyverbs has children do that).
            let mut size = abi::ibv_alloc_dm_attr {
                length: 64,
                ..Default::default()
            };
            let memory = dm::alloc_dm(context, &raw mut size);
            // Tidying up what belongs to the parent does nothing.
            let tidied = pd::ibv_dealloc_pd(domain) == 0 && device::ibv_close_device(context) == 0;
            free && refused
                && tidied
                && query::ibv_query_device(context, &raw mut attr) == 0
                && query::ibv_query_device(own, &raw mut attr) == 0
                && pd::ibv_dealloc_pd(own_domain) == 0
                && device::ibv_close_device(own) == 0
                && dm::free_dm(memory) == 0
        };
        assert!(in_a_child(child), "see stderr of the child");
        assert_eq!(pd::ibv_dealloc_pd(domain), 0);
        assert_eq!(device::ibv_close_device(context), 0);
    }
}
