/*
 * A driver for the devices that netmap published, as a program in the guest: it does what netmap's own drivers do, register by register and in their order.
 * In particular it computes where the rings are before it starts them.
 *
 *   published sysfs|vfio PTNET MEMORY 0|12
 *
 * PTNET and MEMORY are the devices' PCI addresses, the last word is the header's length. With sysfs the status blocks lie at physical addresses and the program
 * polls; with vfio they lie behind an IOMMU and it is woken by the devices' interrupts. The other end sends all frames back.
 */
#define _GNU_SOURCE
#include <net/netmap.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define MAX_RINGS 64
#define IOVA 0x100000

/* Registers of the ptnet device, and of the memory device. */
enum {
	PTFEAT = 0,
	PTCTL = 4,
	MAC_LO = 8,
	MAC_HI = 12,
	NIFP_OFS = 24,
	NUM_TX_RINGS = 28,
	NUM_RX_RINGS = 32,
	NUM_TX_SLOTS = 36,
	NUM_RX_SLOTS = 40,
	VNET_HDR_LEN = 44,
	HOSTMEMID = 48,
	CSB_GH_BAH = 52,
	CSB_GH_BAL = 56,
	CSB_HG_BAH = 60,
	CSB_HG_BAL = 64,
	KICKS = 128,
};
enum { MEMSIZE_LO = 0, MEMSIZE_HI = 4, MEMID = 8, BUF_POOL_OFS = 88, BUF_POOL_OBJSZ = 96 };
enum { CREATE = 1, DELETE = 2 };

#define CHECK(what)                                                                              \
	do {                                                                                     \
		if (!(what)) {                                                                   \
			printf("published.c:%d: %s: %s\n", __LINE__, #what, strerror(errno));    \
			exit(1);                                                                 \
		}                                                                                \
	} while (0)

/* A device's registers: a file, and where in it. */
struct registers {
	int fd;
	off_t at;
};

struct kring {
	struct netmap_ring *ring;
	uint32_t slots, head, tail;
	int vector;
};

static struct {
	struct registers regs, memory_regs;
	char *memory;
	int vfio;
	int interrupts;
	/* What is read when the driver is loaded. */
	uint32_t tx_rings, rx_rings, nifp_ofs, header_len, wanted_header;
	uint8_t mac[6];
	/* What is read when it is opened. */
	uint32_t buf_ofs, buf_size;
	struct nm_csb_atok *atok;
	struct nm_csb_ktoa *ktoa;
	uint64_t csb_address[2];
	struct kring krings[MAX_RINGS];
} dev;

static uint32_t
reg_read(const struct registers *r, uint32_t at)
{
	uint32_t value;

	CHECK(pread(r->fd, &value, 4, r->at + at) == 4);
	return value;
}

static void
reg_write(const struct registers *r, uint32_t at, uint32_t value)
{
	CHECK(pwrite(r->fd, &value, 4, r->at + at) == 4);
}

static int
sysfs(const char *address, const char *file, int flags)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", address, file);
	int fd = open(path, flags);
	CHECK(fd >= 0);
	return fd;
}

/* Has sysfs show a device's registers. */
static struct registers
enable(const char *address)
{
	int fd = sysfs(address, "enable", O_WRONLY);

	CHECK(write(fd, "1", 1) == 1);
	close(fd);
	return (struct registers){ sysfs(address, "resource0", O_RDWR), 0 };
}

/* Physical addresses of the two pages of status blocks. */
static void
find_physical(void)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);

	CHECK(fd >= 0 && mlock(dev.atok, 2 * PAGE) == 0);
	for (int i = 0; i < 2; i++) {
		uint64_t entry;
		uintptr_t page = (uintptr_t)dev.atok / PAGE + i;
		CHECK(pread(fd, &entry, 8, page * 8) == 8 && entry >> 63);
		dev.csb_address[i] = (entry & ((1ULL << 55) - 1)) * PAGE;
	}
	close(fd);
}

/* Opens the device by vfio, with the status blocks mapped behind the IOMMU. */
static void
open_vfio(const char *address)
{
	char path[128], link[256], group_path[64];
	int container = open("/dev/vfio/vfio", O_RDWR);

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group", address);
	ssize_t n = readlink(path, link, sizeof(link) - 1);
	CHECK(container >= 0 && n > 0);
	link[n] = 0;
	snprintf(group_path, sizeof(group_path), "/dev/vfio/%d", atoi(strrchr(link, '/') + 1));
	int group = open(group_path, O_RDWR);
	CHECK(group >= 0 && ioctl(group, VFIO_GROUP_SET_CONTAINER, &container) == 0);
	CHECK(ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) == 0);
	struct vfio_iommu_type1_dma_map map = {
		.argsz = sizeof(map),
		.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
		.vaddr = (uintptr_t)dev.atok,
		.iova = IOVA,
		.size = 2 * PAGE,
	};
	CHECK(ioctl(container, VFIO_IOMMU_MAP_DMA, &map) == 0);
	dev.csb_address[0] = IOVA;
	dev.csb_address[1] = IOVA + PAGE;
	dev.vfio = ioctl(group, VFIO_GROUP_GET_DEVICE_FD, address);
	CHECK(dev.vfio >= 0);
	struct vfio_region_info info = { .argsz = sizeof(info), .index = VFIO_PCI_BAR0_REGION_INDEX };
	CHECK(ioctl(dev.vfio, VFIO_DEVICE_GET_REGION_INFO, &info) == 0 && info.size == 256);
	dev.regs = (struct registers){ dev.vfio, info.offset };
	struct vfio_region_info config = { .argsz = sizeof(config), .index = VFIO_PCI_CONFIG_REGION_INDEX };
	CHECK(ioctl(dev.vfio, VFIO_DEVICE_GET_REGION_INFO, &config) == 0);
	/* Ports, memory, bus master. */
	uint16_t command = 7;
	CHECK(pwrite(dev.vfio, &command, 2, config.offset + 4) == 2);
}

/* As many vectors as rings, neither more nor fewer. */
static void
ask_for_interrupts(uint32_t count)
{
	struct {
		struct vfio_irq_set set;
		int fds[MAX_RINGS];
	} all = {
		.set = {
			.argsz = sizeof(all.set) + 4 * count,
			.flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
			.index = VFIO_PCI_MSIX_IRQ_INDEX,
			.count = count,
		},
	};
	struct vfio_irq_info info = { .argsz = sizeof(info), .index = VFIO_PCI_MSIX_IRQ_INDEX };

	CHECK(ioctl(dev.vfio, VFIO_DEVICE_GET_IRQ_INFO, &info) == 0 && info.count == count);
	for (uint32_t i = 0; i < count; i++) {
		dev.krings[i].vector = all.fds[i] = eventfd(0, EFD_NONBLOCK);
		CHECK(all.fds[i] >= 0);
	}
	CHECK(ioctl(dev.vfio, VFIO_DEVICE_SET_IRQS, &all) == 0);
}

static void
forget_interrupts(uint32_t count)
{
	struct vfio_irq_set none = {
		.argsz = sizeof(none),
		.flags = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER,
		.index = VFIO_PCI_MSIX_IRQ_INDEX,
	};

	CHECK(ioctl(dev.vfio, VFIO_DEVICE_SET_IRQS, &none) == 0);
	for (uint32_t i = 0; i < count; i++)
		close(dev.krings[i].vector);
}

static void
set_csb(uint64_t guest_to_host, uint64_t host_to_guest)
{
	reg_write(&dev.regs, CSB_GH_BAH, guest_to_host >> 32);
	reg_write(&dev.regs, CSB_GH_BAL, guest_to_host);
	reg_write(&dev.regs, CSB_HG_BAH, host_to_guest >> 32);
	reg_write(&dev.regs, CSB_HG_BAL, host_to_guest);
}

static void
update_header_len(void)
{
	reg_write(&dev.regs, VNET_HDR_LEN, dev.wanted_header);
	dev.header_len = reg_read(&dev.regs, VNET_HDR_LEN);
	CHECK(dev.header_len == dev.wanted_header);
}

/* The driver is loaded. */
static void
probe(void)
{
	const struct registers *r = &dev.regs;

	reg_write(r, PTFEAT, dev.wanted_header ? 1 : 0);
	CHECK(reg_read(r, PTFEAT) == (dev.wanted_header ? 1 : 0));
	dev.tx_rings = reg_read(r, NUM_TX_RINGS);
	dev.rx_rings = reg_read(r, NUM_RX_RINGS);
	CHECK(dev.tx_rings > 0 && dev.rx_rings > 0 && dev.tx_rings + dev.rx_rings <= MAX_RINGS);
	memset(dev.atok, 0, 2 * PAGE);
	set_csb(dev.csb_address[0], dev.csb_address[1]);
	uint32_t hi = reg_read(r, MAC_HI), lo = reg_read(r, MAC_LO);
	uint8_t mac[6] = { hi >> 8, hi, lo >> 24, lo >> 16, lo >> 8, lo };
	memcpy(dev.mac, mac, 6);
	if (dev.vfio >= 0)
		ask_for_interrupts(dev.tx_rings + dev.rx_rings);
	dev.nifp_ofs = reg_read(r, NIFP_OFS);
	CHECK(reg_read(r, NUM_TX_SLOTS) > 0 && reg_read(r, NUM_RX_SLOTS) > 0);
	CHECK(reg_read(r, HOSTMEMID) == reg_read(&dev.memory_regs, MEMID));
	update_header_len();
}

static uint32_t
command(uint32_t what)
{
	reg_write(&dev.regs, PTCTL, what);
	return reg_read(&dev.regs, PTCTL);
}

/* It is unloaded. */
static void
unload(void)
{
	CHECK(command(DELETE) == 0);
	set_csb(0, 0);
	CHECK(command(DELETE) == 0);
	if (dev.vfio >= 0)
		forget_interrupts(dev.tx_rings + dev.rx_rings);
}

/* Where the rings are, by the netmap_if; rings of the host's stack lie between the two kinds. */
static void
find_rings(void)
{
	struct netmap_if *nifp = (struct netmap_if *)(dev.memory + dev.nifp_ofs);

	for (uint32_t k = 0; k < dev.tx_rings + dev.rx_rings; k++) {
		int rx = k >= dev.tx_rings;
		struct kring *kring = &dev.krings[k];
		kring->ring = (struct netmap_ring *)((char *)nifp + nifp->ring_ofs[rx ? k + 1 : k]);
		kring->slots = reg_read(&dev.regs, rx ? NUM_RX_SLOTS : NUM_TX_SLOTS);
		CHECK((char *)kring->ring != (char *)nifp && kring->ring->num_slots == kring->slots);
		CHECK(kring->ring->dir == rx && kring->ring->ringid == (rx ? k - dev.tx_rings : k));
		CHECK(kring->ring->nr_buf_size == dev.buf_size);
	}
}

/* The interface goes up. */
static void
open_device(void)
{
	CHECK(reg_read(&dev.regs, NUM_TX_RINGS) == dev.tx_rings && reg_read(&dev.regs, NUM_RX_RINGS) == dev.rx_rings);
	dev.buf_size = reg_read(&dev.memory_regs, BUF_POOL_OBJSZ);
	dev.buf_ofs = reg_read(&dev.memory_regs, BUF_POOL_OFS);
	find_rings();
	for (uint32_t k = 0; k < dev.tx_rings + dev.rx_rings; k++) {
		dev.atok[k].appl_need_kick = k >= dev.tx_rings;
		dev.ktoa[k].kern_need_kick = 1;
	}
	update_header_len();
	CHECK(command(CREATE) == 0);
	for (uint32_t k = 0; k < dev.tx_rings + dev.rx_rings; k++) {
		struct kring *kring = &dev.krings[k];
		kring->head = kring->ring->head = dev.atok[k].head;
		kring->ring->cur = dev.atok[k].cur;
		kring->tail = kring->ring->tail = dev.ktoa[k].hwtail;
		CHECK(kring->head == 0 && kring->tail == (k < dev.tx_rings ? kring->slots - 1 : 0));
	}
}

static void
learn_tail(uint32_t k)
{
	uint32_t hwcur;

	nm_sync_kloop_appl_read(&dev.ktoa[k], &dev.krings[k].tail, &hwcur);
	dev.krings[k].ring->tail = dev.krings[k].tail;
}

static void
publish(uint32_t k, uint32_t head)
{
	struct kring *kring = &dev.krings[k];

	kring->head = kring->ring->head = kring->ring->cur = head;
	nm_sync_kloop_appl_write(&dev.atok[k], head, head);
	nm_stld_barrier();
	if (*(volatile uint32_t *)&dev.ktoa[k].kern_need_kick)
		reg_write(&dev.regs, KICKS + 4 * k, 0);
}

static void
give_up_after_a_while(time_t start, const char *what)
{
	if (time(NULL) - start > 20) {
		printf("time is up: %s\n", what);
		exit(1);
	}
}

/* Waits for a ring's interrupt, or a moment if there are none. */
static void
wait_for_interrupt(uint32_t k)
{
	uint64_t count;
	struct pollfd fd = { .fd = dev.krings[k].vector, .events = POLLIN };

	if (dev.vfio < 0) {
		usleep(200);
	} else if (poll(&fd, 1, 1000) == 1 && read(fd.fd, &count, 8) == 8) {
		dev.interrupts++;
	}
}

/* Whether there is room for the longest frame. */
static int
has_room(uint32_t k)
{
	struct kring *kring = &dev.krings[k];
	uint32_t room = (kring->tail + kring->slots - kring->head) % kring->slots;

	return room >= 65536 / dev.buf_size + 2;
}

static void
wait_for_room(uint32_t k)
{
	time_t start = time(NULL);

	if (!has_room(k))
		learn_tail(k);
	while (!has_room(k)) {
		dev.atok[k].appl_need_kick = 1;
		nm_stld_barrier();
		learn_tail(k);
		if (has_room(k)) {
			dev.atok[k].appl_need_kick = 0;
			return;
		}
		wait_for_interrupt(k);
		give_up_after_a_while(start, "room to send");
	}
}

static char *
buffer(const struct netmap_slot *slot)
{
	return dev.memory + dev.buf_ofs + (size_t)slot->buf_idx * dev.buf_size;
}

static void
transmit(uint32_t k, const uint8_t *frame, uint32_t len)
{
	wait_for_room(k);
	struct kring *kring = &dev.krings[k];
	uint32_t head = kring->head, lead = dev.header_len;

	while (1) {
		struct netmap_slot *slot = &kring->ring->slot[head];
		uint32_t n = len < dev.buf_size - lead ? len : dev.buf_size - lead;
		memset(buffer(slot), 0, lead);
		memcpy(buffer(slot) + lead, frame, n);
		slot->len = lead + n;
		slot->flags = n < len ? NS_MOREFRAG : 0;
		head = (head + 1) % kring->slots;
		frame += n;
		len -= n;
		lead = 0;
		if (len == 0)
			break;
	}
	publish(k, head);
}

/* Takes a frame from an rx ring, its header left out. Returns its length, 0 when there is none: then an interrupt is asked for. */
static uint32_t
take(uint32_t k, uint8_t *frame)
{
	struct kring *kring = &dev.krings[k];

	if (kring->head == kring->tail)
		learn_tail(k);
	if (kring->head == kring->tail) {
		dev.atok[k].appl_need_kick = 1;
		nm_stld_barrier();
		learn_tail(k);
		if (kring->head == kring->tail)
			return 0;
		dev.atok[k].appl_need_kick = 0;
	}
	uint32_t head = kring->head, lead = dev.header_len, len = 0;
	while (1) {
		struct netmap_slot *slot = &kring->ring->slot[head];
		CHECK(slot->len > lead && slot->len <= dev.buf_size);
		memcpy(frame + len, buffer(slot) + lead, slot->len - lead);
		len += slot->len - lead;
		lead = 0;
		head = (head + 1) % kring->slots;
		if (!(slot->flags & NS_MOREFRAG))
			break;
		CHECK(head != kring->tail);
	}
	publish(k, head);
	return len;
}

/* Frame number i: its number behind the Ethernet header, then what follows from it. Lengths differ, up to two slots. */
static uint32_t
make_frame(uint8_t *frame, uint32_t i)
{
	uint32_t len = 60 + i * 37 % 4000;

	memset(frame, 0xff, 6);
	memcpy(frame + 6, dev.mac, 6);
	frame[12] = 0x88;
	frame[13] = 0xb5;
	memcpy(frame + 14, &i, 4);
	for (uint32_t k = 18; k < len; k++)
		frame[k] = i + k;
	return len;
}

/* A frame that came back is one that was sent, but for the addresses. */
static void
check_frame(const uint8_t *got, uint32_t len, uint32_t frames)
{
	static uint8_t want[65536];
	uint32_t i;

	memcpy(&i, got + 14, 4);
	CHECK(len >= 60 && i < frames && make_frame(want, i) == len);
	CHECK(memcmp(got, dev.mac, 6) == 0 && memcmp(got + 12, want + 12, len - 12) == 0);
}

/* Sends frames on all rings in turn, and gets all of them back. */
static void
exchange(uint32_t frames)
{
	static uint8_t frame[65536];
	time_t start = time(NULL);
	uint32_t out = 0, back = 0, rx = dev.tx_rings;

	while (back < frames) {
		for (; out < frames && out < back + 8; out++)
			transmit(out % dev.tx_rings, frame, make_frame(frame, out));
		uint32_t len, before = back;
		for (uint32_t k = rx; k < rx + dev.rx_rings; k++) {
			for (; (len = take(k, frame)) != 0; back++)
				check_frame(frame, len, frames);
		}
		/* What comes back comes on the first ring: the one at the other end has no more. */
		if (back == before)
			wait_for_interrupt(rx);
		give_up_after_a_while(start, "frames to come back");
	}
}

int
main(int argc, char **argv)
{
	CHECK(argc == 5);
	dev.vfio = -1;
	dev.wanted_header = atoi(argv[4]);
	dev.atok = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	CHECK(dev.atok != MAP_FAILED);
	dev.ktoa = (struct nm_csb_ktoa *)((char *)dev.atok + PAGE);
	dev.memory_regs = enable(argv[3]);
	if (strcmp(argv[1], "vfio") == 0) {
		open_vfio(argv[2]);
	} else {
		dev.regs = enable(argv[2]);
		find_physical();
	}
	uint64_t size = reg_read(&dev.memory_regs, MEMSIZE_LO) | (uint64_t)reg_read(&dev.memory_regs, MEMSIZE_HI) << 32;
	dev.memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, sysfs(argv[3], "resource1", O_RDWR), 0);
	CHECK(dev.memory != MAP_FAILED);
	for (int load = 0; load < 2; load++) {
		probe();
		for (int up = 0; up < 2; up++) {
			open_device();
			exchange(300);
			CHECK(command(DELETE) == 0);
		}
		unload();
	}
	printf("exchanged with a header of %u, %u rings, %s\n", dev.header_len, dev.tx_rings,
	       dev.interrupts ? "interrupted" : "polling");
	return 0;
}
