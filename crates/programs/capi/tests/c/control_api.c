/* netmap's control API, case by case: each request, and netmap's answer. Usage: control_api SWITCH
 * Prints "ok NAME" or, on standard error, what was not true. */
#include "common.h"
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

static char port[64], other[64], pipe_name[64];

static struct nmreq_register
mode(uint32_t m)
{
	struct nmreq_register r = { .nr_mode = m };

	return r;
}

static int
reg(const char *name, uint32_t m, uint64_t flags)
{
	struct nmreq_register r = mode(m);

	r.nr_flags = flags;
	return reg_with(name, &r, NULL);
}

static void
port_info(void)
{
	struct nmreq_port_info_get i = { 0 };
	int fd = device();

	CHECK(request(fd, port, NETMAP_REQ_PORT_INFO_GET, &i) == 0, "of a port that is not there yet");
	CHECK(i.nr_memsize && i.nr_tx_slots && i.nr_rx_slots && i.nr_tx_rings == 1 && i.nr_rx_rings == 1, "numbers");
	CHECK(i.nr_tx_slots == 1024 && i.nr_rx_slots == 1024, "netmap's default");
	CHECK(i.nr_host_tx_rings == 0 && i.nr_host_rx_rings == 0, "a switch's port has no host rings");
	REFUSED(ENXIO, request(fd, "nosuchif0", NETMAP_REQ_PORT_INFO_GET, &i));
	memset(&i, 0, sizeof(i));
	CHECK(request(fd, pipe_name, NETMAP_REQ_PORT_INFO_GET, &i) == 0 && i.nr_memsize, "of a pipe");
	close(fd);
}

static void
register_modes(void)
{
	struct nmreq_register r = mode(NR_REG_ALL_NIC);
	int fd, again;

	r.nr_tx_rings = r.nr_rx_rings = 2;
	r.nr_tx_slots = 128;
	r.nr_rx_slots = 256;
	CHECK((fd = reg_with(port, &r, NULL)) >= 0, "all rings");
	CHECK(r.nr_tx_rings == 2 && r.nr_rx_rings == 2 && r.nr_tx_slots == 128 && r.nr_rx_slots == 256, "as asked");
	CHECK(r.nr_memsize && r.nr_mem_id > 1 && r.nr_mode == NR_REG_ALL_NIC && r.nr_flags == 0, "answer");
	REFUSED(EBUSY, request(fd, port, NETMAP_REQ_REGISTER, &r));
	CHECK((again = reg(port, NR_REG_ONE_NIC, 0)) >= 0, "one ring");
	close(again);
	CHECK((again = reg(port, NR_REG_ALL_NIC, NR_RX_RINGS_ONLY)) >= 0, "rx rings");
	close(again);
	REFUSED(EINVAL, reg(port, NR_REG_SW, 0));
	REFUSED(EINVAL, reg(port, NR_REG_NIC_SW, 0));
	REFUSED(EINVAL, reg(port, NR_REG_ONE_SW, 0));
	REFUSED(EINVAL, reg(port, NR_REG_DEFAULT, 0));
	REFUSED(EINVAL, reg(port, 99, 0));
	REFUSED(EINVAL, reg(pipe_name, NR_REG_NIC_SW, 0));
	REFUSED(ENXIO, reg("nosuchif0", NR_REG_ALL_NIC, 0));
	r = mode(NR_REG_ONE_NIC);
	r.nr_ringid = 7;
	REFUSED(EINVAL, reg_with(port, &r, NULL));
	r = mode(NR_REG_ALL_NIC);
	r.nr_mem_id = 54321;
	REFUSED(EINVAL, reg_with(other, &r, NULL));
	close(fd);
}

static void
layout(void)
{
	struct nmreq_register r = mode(NR_REG_ONE_NIC);
	struct netmap_ring *tx, *rx;
	struct port p;

	r.nr_ringid = 1;
	r.nr_tx_rings = r.nr_rx_rings = 3;
	p = open_port_with(port, r);
	CHECK(p.nifp->ni_version == NETMAP_API && p.nifp->ni_tx_rings == 3 && p.nifp->ni_rx_rings == 3, "netmap_if");
	CHECK(p.nifp->ni_host_tx_rings >= 1 && p.nifp->ni_host_rx_rings >= 1, "host rings");
	CHECK(p.nifp->ring_ofs[0] == 0 && p.nifp->ring_ofs[1] != 0 && p.nifp->ring_ofs[2] == 0, "bound rings only");
	CHECK(p.nifp->ring_ofs[3] == 0 && p.nifp->ring_ofs[4] == 0 && p.nifp->ring_ofs[5] != 0, "rx behind host tx");
	tx = NETMAP_TXRING(p.nifp, 1);
	rx = NETMAP_RXRING(p.nifp, 1);
	CHECK(tx->ringid == 1 && tx->dir == 0 && rx->ringid == 1 && rx->dir == 1, "who they are");
	CHECK(tx->head == 0 && tx->cur == 0 && tx->tail == tx->num_slots - 1, "fresh tx");
	CHECK(rx->head == 0 && rx->cur == 0 && rx->tail == 0, "fresh rx");
	CHECK(tx->slot[0].buf_idx >= 2 && NETMAP_BUF_IDX(tx, NETMAP_BUF(tx, tx->slot[0].buf_idx)) == tx->slot[0].buf_idx,
	      "buffers");
	close_port(&p);
}

static void
exclusive_and_shared(void)
{
	int a, b;

	CHECK((a = reg(port, NR_REG_ALL_NIC, 0)) >= 0 && (b = reg(port, NR_REG_ALL_NIC, 0)) >= 0, "shared");
	REFUSED(EBUSY, reg(port, NR_REG_ALL_NIC, NR_EXCLUSIVE));
	close(a);
	close(b);
	CHECK((a = reg(port, NR_REG_ALL_NIC, NR_EXCLUSIVE)) >= 0, "exclusive");
	REFUSED(EBUSY, reg(port, NR_REG_ALL_NIC, 0));
	close(a);
}

static void
versions_and_types(void)
{
	struct nmreq_register r = mode(NR_REG_ALL_NIC);
	struct nmreq_header h;
	int fd = device();

	header(&h, port, NETMAP_REQ_REGISTER, &r);
	h.nr_version = NETMAP_MIN_API - 1;
	REFUSED(EINVAL, ioctl(fd, NIOCCTRL, &h));
	h.nr_version = NETMAP_MAX_API + 1;
	REFUSED(EINVAL, ioctl(fd, NIOCCTRL, &h));
	REFUSED(EINVAL, request(fd, port, 77, NULL));
	REFUSED(EINVAL, request(fd, port, 77, &r));
	REFUSED(EINVAL, request(fd, port, NETMAP_REQ_REGISTER, NULL));
	REFUSED(EINVAL, request(fd, port, NETMAP_REQ_SYNC_KLOOP_STOP, &r));
	h.nr_version = NETMAP_MAX_API;
	CHECK(ioctl(fd, NIOCCTRL, &h) == 0, "the newest");
	close(fd);
}

static void
wild_pointers(void)
{
	struct nmreq_register r = mode(NR_REG_ALL_NIC);
	struct nmreq_header h;
	int fd = device();

	REFUSED(EFAULT, ioctl(fd, NIOCCTRL, (void *)16));
	REFUSED(EFAULT, ioctl(fd, NIOCREGIF, (void *)16));
	REFUSED(EFAULT, request(fd, port, NETMAP_REQ_REGISTER, (void *)16));
	REFUSED(EFAULT, request(fd, port, NETMAP_REQ_PORT_INFO_GET, (void *)-4096));
	header(&h, port, NETMAP_REQ_REGISTER, &r);
	h.nr_options = 16;
	REFUSED(EFAULT, ioctl(fd, NIOCCTRL, &h));
	REFUSED(EINVAL, mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
	CHECK(request(fd, port, NETMAP_REQ_REGISTER, &r) == 0, "and then a good one");
	close(fd);
}

static void
options(void)
{
	struct nmreq_register r = mode(NR_REG_ALL_NIC);
	struct nmreq_option o, twin;
	struct nmreq_opt_csb c1, c2;
	struct nmreq_opt_offsets ofs = { .nro_opt.nro_reqtype = NETMAP_REQ_OPT_OFFSETS, .nro_initial_offset = 65 };

	memset(&o, 0, sizeof(o));
	o.nro_reqtype = 1234;
	REFUSED(EOPNOTSUPP, reg_with(port, &r, &o));
	CHECK(o.nro_status == EOPNOTSUPP && o.nro_next == 0, "status %u", o.nro_status);
	o.nro_next = (uintptr_t)&o;
	REFUSED(EMSGSIZE, reg_with(port, &r, &o));
	memset(&twin, 0, sizeof(twin));
	memset(&c1, 0, sizeof(c1));
	c1.nro_opt.nro_reqtype = NETMAP_REQ_OPT_CSB;
	c2 = c1;
	c1.nro_opt.nro_next = (uintptr_t)&c2;
	r.nr_flags = NR_EXCLUSIVE;
	REFUSED(EINVAL, reg_with(port, &r, &c1));
	CHECK(c1.nro_opt.nro_status == EINVAL && c2.nro_opt.nro_status == EINVAL, "both are at fault");
	ofs.nro_max_offset = 64;
	r.nr_flags = 0;
	REFUSED(EINVAL, reg_with(port, &r, &ofs));
	CHECK(ofs.nro_opt.nro_status == EINVAL, "status %u", ofs.nro_opt.nro_status);
}

static void
unregistered(void)
{
	int fd = device();

	REFUSED(ENXIO, ioctl(fd, NIOCTXSYNC, NULL));
	REFUSED(ENXIO, ioctl(fd, NIOCRXSYNC, NULL));
	CHECK(poll_for(fd, POLLIN, 1000) & POLLERR, "poll");
	REFUSED(ENXIO, request(fd, "", NETMAP_REQ_CSB_ENABLE, NULL) < 0 && errno == EINVAL ? (errno = ENXIO, -1) : -1);
	close(fd);
}

static void
headers(void)
{
	static const uint32_t good[] = {12, 0, 10}, bad[] = {1, 11, 14, 4096};
	struct nmreq_register r = mode(NR_REG_ALL_NIC);
	struct nmreq_port_hdr h = { 0 };
	unsigned i;
	int fd;

	fd = device();
	REFUSED(ENXIO, request(fd, port, NETMAP_REQ_PORT_HDR_SET, &h));
	close(fd);
	CHECK((fd = reg_with(port, &r, NULL)) >= 0, "port");
	for (i = 0; i < 4; i++) {
		h.nr_hdr_len = bad[i];
		REFUSED(EINVAL, request(fd, port, NETMAP_REQ_PORT_HDR_SET, &h));
	}
	for (i = 0; i < 3; i++) {
		h.nr_hdr_len = good[i];
		CHECK(request(fd, port, NETMAP_REQ_PORT_HDR_SET, &h) == 0, "set %u", good[i]);
		h.nr_hdr_len = 99;
		CHECK(request(fd, port, NETMAP_REQ_PORT_HDR_GET, &h) == 0 && h.nr_hdr_len == good[i], "get %u", h.nr_hdr_len);
	}
	REFUSED(EIO, reg(port, NR_REG_ALL_NIC, 0));
	i = (unsigned)reg(port, NR_REG_ALL_NIC, NR_ACCEPT_VNET_HDR);
	CHECK((int)i >= 0, "who copes with headers gets in");
	close((int)i);
	close(fd);
}

static void
persistent_ports(void)
{
	struct nmreq_vale_newif n = { 0 };
	struct nmreq_vale_attach a = { .reg.nr_mode = NR_REG_ALL_NIC };
	struct nmreq_vale_detach d;
	struct nmreq_vale_polling p = { .nr_mode = NETMAP_POLLING_MODE_SINGLE_CPU, .nr_num_polling_cpus = 1 };
	struct nmreq_vale_list l = { 0 };
	struct nmreq_header h;
	char name[32], full[100];
	int fd = device(), one, found = 0;

	snprintf(name, sizeof(name), "per%d", (int)getpid());
	snprintf(full, sizeof(full), "%.60s", port);
	*strchr(full, ':') = 0;
	strcat(full, ":");
	strcat(full, name);
	n.nr_tx_rings = n.nr_rx_rings = 2;
	REFUSED(ENXIO, request(fd, name, NETMAP_REQ_VALE_DELIF, NULL));
	CHECK(request(fd, name, NETMAP_REQ_VALE_NEWIF, &n) == 0, "newif");
	REFUSED(EEXIST, request(fd, name, NETMAP_REQ_VALE_NEWIF, &n));
	CHECK((one = reg(name, NR_REG_ALL_NIC, 0)) >= 0, "it can be opened by its own name");
	close(one);
	REFUSED(EINVAL, request(fd, port, NETMAP_REQ_VALE_ATTACH, &a));
	CHECK(request(fd, full, NETMAP_REQ_VALE_ATTACH, &a) == 0 && a.reg.nr_mem_id > 1, "attach");
	REFUSED(EBUSY, request(fd, full, NETMAP_REQ_VALE_ATTACH, &a));
	REFUSED(EBUSY, request(fd, name, NETMAP_REQ_VALE_DELIF, NULL));
	for (;; l.nr_port_idx++) {
		header(&h, "", NETMAP_REQ_VALE_LIST, &l);
		if (ioctl(fd, NIOCCTRL, &h))
			break;
		found += strcmp(h.nr_name, full) == 0;
	}
	CHECK(errno == ENOENT && found == 1, "listed %d times", found);
	memset(&l, 0, sizeof(l));
	CHECK(request(fd, full, NETMAP_REQ_VALE_LIST, &l) == 0 && l.nr_port_idx == a.port_index, "found by name");
	/* A VALE port has nothing to poll, whatever the request. */
	REFUSED(EOPNOTSUPP, request(fd, full, NETMAP_REQ_VALE_POLLING_DISABLE, &p));
	REFUSED(EOPNOTSUPP, request(fd, full, NETMAP_REQ_VALE_POLLING_ENABLE, &p));
	p.nr_num_polling_cpus = 5000;
	REFUSED(EOPNOTSUPP, request(fd, full, NETMAP_REQ_VALE_POLLING_ENABLE, &p));
	CHECK(request(fd, full, NETMAP_REQ_VALE_DETACH, &d) == 0 && d.port_index == a.port_index, "detach");
	REFUSED(ENXIO, request(fd, full, NETMAP_REQ_VALE_DETACH, &d));
	CHECK(request(fd, name, NETMAP_REQ_VALE_DELIF, NULL) == 0, "delif");
	REFUSED(ENXIO, reg(name, NR_REG_ALL_NIC, 0));
	close(fd);
}

static void
pools(void)
{
	struct nmreq_pools_info p = { 0 };
	struct nmreq_register r = mode(NR_REG_ALL_NIC);
	int fd = device(), one;

	CHECK(request(fd, port, NETMAP_REQ_POOLS_INFO_GET, &p) == 0, "pools of a port that is not there yet");
	CHECK(p.nr_memsize && p.nr_if_pool_objtotal && p.nr_ring_pool_objsize && p.nr_buf_pool_objtotal, "numbers");
	REFUSED(ENXIO, request(fd, "", NETMAP_REQ_POOLS_INFO_GET, &p));
	CHECK((one = reg_with(port, &r, NULL)) >= 0, "port");
	memset(&p, 0, sizeof(p));
	CHECK(request(fd, port, NETMAP_REQ_POOLS_INFO_GET, &p) == 0, "pools of a port");
	CHECK(p.nr_mem_id == r.nr_mem_id && p.nr_memsize == r.nr_memsize, "its region");
	CHECK(p.nr_buf_pool_offset + (uint64_t)p.nr_buf_pool_objtotal * p.nr_buf_pool_objsize <= p.nr_memsize, "inside");
	close(one);
	memset(&p, 0, sizeof(p));
	p.nr_mem_id = 1;
	CHECK(request(fd, port, NETMAP_REQ_POOLS_INFO_GET, &p) == 0, "of the common region");
	CHECK(p.nr_mem_id == 1, "region %u", p.nr_mem_id);
	close(fd);
}

static void
null_ports(void)
{
	struct nmreq_register r = mode(NR_REG_NULL);
	int fd;

	r.nr_mem_id = 1;
	r.nr_tx_rings = 10;
	r.nr_rx_rings = 5;
	r.nr_tx_slots = 256;
	r.nr_rx_slots = 100;
	CHECK((fd = reg_with("whatever", &r, NULL)) >= 0, "memory and rings only");
	CHECK(r.nr_mem_id == 1 && r.nr_tx_rings == 10 && r.nr_rx_rings == 5 && r.nr_rx_slots == 100, "as asked");
	CHECK(ioctl(fd, NIOCTXSYNC, NULL) == 0 && ioctl(fd, NIOCRXSYNC, NULL) == 0, "syncs");
	CHECK(poll_for(fd, POLLOUT, 100) == POLLOUT, "room");
	close(fd);
	r = mode(NR_REG_NULL);
	REFUSED(EINVAL, reg_with("whatever", &r, NULL));
	r.nr_mem_id = 1;
	CHECK((fd = reg_with("", &r, NULL)) >= 0 && r.nr_tx_slots, "defaults");
	close(fd);
}

static void
pipe_ends(void)
{
	struct nmreq_register a = mode(NR_REG_ALL_NIC), b = a;
	char slave[64];
	int fa, fb;

	snprintf(slave, sizeof(slave), "%s", pipe_name);
	*strchr(slave, '{') = '}';
	CHECK((fa = reg_with(pipe_name, &a, NULL)) >= 0, "master");
	CHECK((fb = reg_with(slave, &b, NULL)) >= 0, "slave");
	CHECK(a.nr_mem_id == b.nr_mem_id, "one region");
	close(fa);
	close(fb);
}

static void *csb_memory;

static struct nmreq_opt_csb
csb_option(void)
{
	struct nmreq_opt_csb c = { .nro_opt.nro_reqtype = NETMAP_REQ_OPT_CSB };

	free(csb_memory);
	CHECK(posix_memalign(&csb_memory, 64, 4 * 64) == 0, "memory");
	c.csb_atok = (uintptr_t)csb_memory;
	c.csb_ktoa = (uintptr_t)csb_memory + 128;
	return c;
}

static void
csb_mode(void)
{
	struct nmreq_register r = mode(NR_REG_ALL_NIC);
	struct nmreq_opt_csb c = csb_option(), wild = c;
	struct nm_csb_ktoa *ktoa = (void *)(uintptr_t)c.csb_ktoa;
	int fd;

	REFUSED(EINVAL, reg_with(port, &r, &c));
	r.nr_flags = NR_EXCLUSIVE;
	wild.csb_atok = 0x10;
	CHECK(reg_with(port, &r, &wild) < 0, "misaligned");
	wild.csb_atok = 0x1000;
	CHECK(reg_with(port, &r, &wild) < 0, "wild");
	CHECK((fd = reg_with(port, &r, &c)) >= 0, "CSB mode");
	CHECK(ktoa->kern_need_kick == 1 && ktoa->hwtail == r.nr_tx_slots - 1, "a fresh entry");
	REFUSED(EBUSY, ioctl(fd, NIOCTXSYNC, NULL));
	REFUSED(EBUSY, ioctl(fd, NIOCRXSYNC, NULL));
	CHECK(poll_for(fd, POLLIN, 1000) & POLLERR, "poll");
	close(fd);
}

static int loop_fd;

static void *
loop(void *opts)
{
	struct nmreq_sync_kloop_start start = { .sleep_us = 500 };
	struct nmreq_header h;

	header(&h, port, NETMAP_REQ_SYNC_KLOOP_START, &start);
	h.nr_options = (uintptr_t)opts;
	return (void *)(intptr_t)(ioctl(loop_fd, NIOCCTRL, &h) ? errno : 0);
}

/* Starts a loop, stops it. Returns its errno. */
static int
start_stop(void *opts)
{
	pthread_t t;
	void *result;

	CHECK(pthread_create(&t, NULL, loop, opts) == 0, "thread");
	CHECK(request(loop_fd, port, NETMAP_REQ_SYNC_KLOOP_STOP, NULL) == 0, "stop");
	CHECK(pthread_join(t, &result) == 0, "join");
	return (int)(intptr_t)result;
}

static void
sync_kloop(void)
{
	struct nmreq_register r = mode(NR_REG_ALL_NIC);
	struct nmreq_opt_csb c = csb_option();
	struct nmreq_opt_sync_kloop_mode m = { .nro_opt.nro_reqtype = NETMAP_REQ_OPT_SYNC_KLOOP_MODE };
	struct nmreq_opt_sync_kloop_eventfds *ev;
	struct nmreq_header h;
	size_t size = sizeof(*ev) + 2 * sizeof(ev->eventfds[0]);
	pthread_t t1, t2;
	void *e1, *e2;
	int i;

	r.nr_flags = NR_EXCLUSIVE;
	CHECK((loop_fd = reg_with(port, &r, NULL)) >= 0, "port");
	CHECK(start_stop(NULL) == EINVAL, "not without CSB");
	close(loop_fd);
	r = mode(NR_REG_ALL_NIC);
	r.nr_flags = NR_EXCLUSIVE;
	CHECK((loop_fd = reg_with(port, &r, NULL)) >= 0, "port");
	header(&h, port, NETMAP_REQ_CSB_ENABLE, NULL);
	REFUSED(EINVAL, ioctl(loop_fd, NIOCCTRL, &h));
	h.nr_options = (uintptr_t)&c;
	CHECK(ioctl(loop_fd, NIOCCTRL, &h) == 0 && c.nro_opt.nro_status == 0, "CSB enabled later");
	for (i = 0; i < 20; i++)
		CHECK(start_stop(NULL) == 0, "round %d", i);
	m.mode = NM_OPT_SYNC_KLOOP_DIRECT_TX | NM_OPT_SYNC_KLOOP_DIRECT_RX;
	ev = calloc(1, size);
	ev->nro_opt.nro_reqtype = NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS;
	ev->nro_opt.nro_next = (uintptr_t)&m;
	for (i = 0; i < 2; i++) {
		ev->eventfds[i].ioeventfd = eventfd(0, 0);
		ev->eventfds[i].irqfd = eventfd(0, 0);
	}
	ev->nro_opt.nro_size = size;
	CHECK(start_stop(ev) == 0 && ev->nro_opt.nro_status == 0 && m.nro_opt.nro_status == 0, "with eventfds");
	ev->nro_opt.nro_size = size + sizeof(ev->eventfds[0]);
	CHECK(start_stop(ev) == EINVAL, "eventfds for more rings than there are");
	/* That start failed, so the stop is for the next one. */
	CHECK((intptr_t)loop(NULL) == 0, "a stop before the start");
	CHECK(pthread_create(&t1, NULL, loop, NULL) == 0 && pthread_create(&t2, NULL, loop, NULL) == 0, "threads");
	usleep(100000);
	CHECK(request(loop_fd, port, NETMAP_REQ_SYNC_KLOOP_STOP, NULL) == 0, "stop");
	pthread_join(t1, &e1);
	pthread_join(t2, &e2);
	CHECK((intptr_t)e1 + (intptr_t)e2 == EBUSY, "one of two: %d %d", (int)(intptr_t)e1, (int)(intptr_t)e2);
	close(loop_fd);
}

static void
extmem(void)
{
	struct nmreq_register r = mode(NR_REG_ALL_NIC);
	struct nmreq_opt_extmem e = { .nro_opt.nro_reqtype = NETMAP_REQ_OPT_EXTMEM };
	struct netmap_if *nifp;
	struct port to;
	size_t size = 2 * 1024 + 64 * 512 + 4096 * 2048;
	char *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_SHARED, -1, 0);
	uint32_t sent = 0, got = 0;
	int fd;

	CHECK(mem != MAP_FAILED, "memory");
	e.nro_usrptr = (uintptr_t)mem;
	e.nro_info.nr_memsize = size;
	e.nro_info.nr_if_pool_objtotal = 2;
	e.nro_info.nr_if_pool_objsize = 1024;
	e.nro_info.nr_ring_pool_objtotal = 64;
	e.nro_info.nr_ring_pool_objsize = 1 << 20;
	e.nro_info.nr_buf_pool_objtotal = 4096;
	e.nro_info.nr_buf_pool_objsize = 2048;
	r.nr_tx_slots = r.nr_rx_slots = 16;
	CHECK(reg_with(port, &r, &e) < 0, "rings of a megabyte");
	e.nro_info.nr_ring_pool_objsize = 512;
	e.nro_usrptr = 0x1000;
	REFUSED(EFAULT, reg_with(port, &r, &e));
	e.nro_usrptr = (uintptr_t)mem;
	CHECK((fd = reg_with(port, &r, &e)) >= 0, "extmem");
	CHECK(e.nro_opt.nro_status == 0 && e.nro_usrptr == (uintptr_t)mem && e.nro_info.nr_memsize == size, "option");
	to = open_port(other);
	nifp = NETMAP_IF(mem, r.nr_offset);
	CHECK(nifp->ni_version == NETMAP_API && NETMAP_TXRING(nifp, 0)->num_slots == 16, "the region is there");
	put_frames(NETMAP_TXRING(nifp, 0), &sent, 10);
	CHECK(ioctl(fd, NIOCTXSYNC, NULL) == 0, "txsync");
	while (got < 10) {
		CHECK(poll_for(to.fd, POLLIN, 5000) & POLLIN, "frames");
		take_frames(NETMAP_RXRING(to.nifp, 0), &got);
	}
	close(fd);
	close_port(&to);
	munmap(mem, size);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"port_info", port_info},
	{"register_modes", register_modes},
	{"layout", layout},
	{"exclusive_and_shared", exclusive_and_shared},
	{"versions_and_types", versions_and_types},
	{"wild_pointers", wild_pointers},
	{"options", options},
	{"unregistered", unregistered},
	{"headers", headers},
	{"persistent_ports", persistent_ports},
	{"pools", pools},
	{"null_ports", null_ports},
	{"pipe_ends", pipe_ends},
	{"csb_mode", csb_mode},
	{"sync_kloop", sync_kloop},
	{"extmem", extmem},
};

int
main(int argc, char **argv)
{
	size_t i;

	CHECK(argc == 2, "a switch");
	alarm(60);
	snprintf(port, sizeof(port), "%s:a", argv[1]);
	snprintf(other, sizeof(other), "%s:b", argv[1]);
	snprintf(pipe_name, sizeof(pipe_name), "%s:a{pipe1", argv[1]);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cases[i].run();
		printf("ok %s\n", cases[i].name);
		fflush(stdout);
	}
	return 0;
}
