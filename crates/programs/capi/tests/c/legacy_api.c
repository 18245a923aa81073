/* NIOCREGIF and NIOCGINFO, the requests that preceded NIOCCTRL. Usage: legacy_api SWITCH */
#include "common.h"

static const char *sw;

static struct nmreq
legacy(const char *suffix)
{
	struct nmreq r = { 0 };

	snprintf(r.nr_name, sizeof(r.nr_name), "%s%s", sw, suffix);
	r.nr_version = NETMAP_API;
	return r;
}

static int
regif(struct nmreq *r)
{
	int fd = device(), n = ioctl(fd, NIOCREGIF, r), saved = errno;

	if (n == 0)
		return fd;
	close(fd);
	errno = saved;
	return -1;
}

static void
versions(void)
{
	struct nmreq r = legacy(":v");
	int fd;

	r.nr_version = 11;
	CHECK(regif(&r) < 0 && errno == EINVAL, "version 11");
	CHECK(r.nr_version == NETMAP_API, "the version to use is told");
	r.nr_version = NETMAP_API + 2;
	CHECK((fd = regif(&r)) >= 0, "versions to come are taken");
	close(fd);
}

static void
registration(void)
{
	struct nmreq r = legacy(":a"), again;
	struct netmap_if *nifp;
	int fd = regif(&r);
	char *mem;

	CHECK(fd >= 0, "register");
	CHECK(r.nr_memsize && r.nr_tx_rings == 1 && r.nr_rx_rings == 1 && r.nr_tx_slots && r.nr_arg2 > 1, "answer");
	CHECK(r.nr_flags == 0, "flags stay");
	mem = mmap(NULL, r.nr_memsize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(mem != MAP_FAILED, "mmap");
	nifp = NETMAP_IF(mem, r.nr_offset);
	CHECK(nifp->ni_tx_rings == 1 && NETMAP_TXRING(nifp, 0)->num_slots == r.nr_tx_slots, "ring");
	again = r;
	CHECK(ioctl(fd, NIOCREGIF, &again) < 0 && errno == EBUSY, "twice on one descriptor");
	again = legacy(":a");
	CHECK(ioctl(fd, NIOCGINFO, &again) == 0 && again.nr_tx_slots == r.nr_tx_slots && again.nr_arg2 == r.nr_arg2,
	      "info");
	again = legacy(":a");
	again.nr_flags = NR_REG_SW;
	CHECK(regif(&again) < 0 && errno == EINVAL, "a switch's port has no host rings");
	again = legacy(":a");
	again.nr_ringid = NETMAP_HW_RING | 0;
	{
		int one = regif(&again);

		CHECK(one >= 0 && again.nr_ringid == NETMAP_HW_RING, "one ring, by nr_ringid");
		close(one);
	}
	again = legacy(":a");
	again.nr_ringid = NETMAP_HW_RING | 7;
	CHECK(regif(&again) < 0 && errno == EINVAL, "no ring 7");
	munmap(mem, r.nr_memsize);
	close(fd);
	memset(&again, 0, sizeof(again));
	again.nr_version = NETMAP_API;
	fd = device();
	CHECK(ioctl(fd, NIOCGINFO, &again) == 0 && again.nr_memsize > 0, "without a name: the common memory");
	snprintf(again.nr_name, sizeof(again.nr_name), "nosuchif0");
	CHECK(ioctl(fd, NIOCGINFO, &again) < 0 && errno == ENXIO, "no such interface");
	close(fd);
}

static void
extra_buffers(void)
{
	struct nmreq r = legacy(":e");
	int fd;

	r.nr_arg3 = 20;
	r.nr_flags = NR_REG_ALL_NIC;
	CHECK((fd = regif(&r)) >= 0 && r.nr_arg3 == 20, "%u extra buffers", r.nr_arg3);
	close(fd);
	r = legacy(":e{x1");
	r.nr_arg3 = 58;
	CHECK((fd = regif(&r)) >= 0 && r.nr_arg3 == 58, "%u extra buffers on a pipe", r.nr_arg3);
	close(fd);
	r = legacy(":e");
	r.nr_flags = NR_REG_PIPE_MASTER;
	r.nr_ringid = 3;
	CHECK((fd = regif(&r)) >= 0, "a pipe by its number");
	{
		struct nmreq other = legacy(":e}3");
		int end;

		CHECK((end = regif(&other)) >= 0 && other.nr_arg2 == r.nr_arg2, "the other end by its name");
		close(end);
	}
	close(fd);
}

static void
commands(void)
{
	struct nmreq r = { .nr_version = NETMAP_API };
	int fd = device(), k, found = 0;
	char port[16];

	snprintf(port, sizeof(port), "p%d", (int)getpid() % 100000);
	snprintf(r.nr_name, sizeof(r.nr_name), "%s", port);
	r.nr_cmd = NETMAP_BDG_NEWIF;
	CHECK(ioctl(fd, NIOCREGIF, &r) == 0, "newif");
	CHECK(ioctl(fd, NIOCREGIF, &r) < 0 && errno == EEXIST, "newif twice");
	r.nr_cmd = NETMAP_BDG_ATTACH;
	snprintf(r.nr_name, sizeof(r.nr_name), "%.8s:%.6s", sw, port);
	CHECK(ioctl(fd, NIOCREGIF, &r) == 0 && r.nr_arg2 > 1, "attach");
	for (k = 0;; k++) {
		struct nmreq l = { .nr_version = NETMAP_API, .nr_cmd = NETMAP_BDG_LIST, .nr_arg1 = (uint16_t)(k >> 8) };

		l.nr_arg2 = (uint16_t)(k & 0xff);
		if (ioctl(fd, NIOCGINFO, &l)) {
			CHECK(errno == ENOENT, "the end of the list");
			break;
		}
		k = l.nr_arg1 << 8 | l.nr_arg2;
		found += strcmp(l.nr_name, r.nr_name) == 0;
	}
	CHECK(found == 1, "listed %d times", found);
	r.nr_cmd = NETMAP_BDG_VNET_HDR;
	r.nr_arg1 = 12;
	CHECK(ioctl(fd, NIOCREGIF, &r) == 0, "header of 12 bytes");
	r.nr_arg1 = 0;
	r.nr_cmd = NETMAP_VNET_HDR_GET;
	CHECK(ioctl(fd, NIOCREGIF, &r) == 0 && r.nr_arg1 == 12, "header %u", r.nr_arg1);
	r.nr_cmd = NETMAP_BDG_POLLING_ON;
	r.nr_flags = NR_REG_ALL_NIC;
	r.nr_ringid = 0;
	r.nr_arg1 = 1;
	CHECK(ioctl(fd, NIOCREGIF, &r) < 0 && errno == EOPNOTSUPP, "nothing to poll");
	r.nr_cmd = NETMAP_BDG_POLLING_OFF;
	CHECK(ioctl(fd, NIOCREGIF, &r) < 0 && errno == EOPNOTSUPP, "nor to stop");
	r.nr_cmd = NETMAP_BDG_DETACH;
	CHECK(ioctl(fd, NIOCREGIF, &r) == 0, "detach");
	snprintf(r.nr_name, sizeof(r.nr_name), "%s", port);
	r.nr_cmd = NETMAP_BDG_DELIF;
	CHECK(ioctl(fd, NIOCREGIF, &r) == 0, "delif");
	r.nr_cmd = NETMAP_BDG_REGOPS;
	CHECK(ioctl(fd, NIOCREGIF, &r) < 0 && errno == EINVAL, "not for programs");
	close(fd);
}

int
main(int argc, char **argv)
{
	CHECK(argc == 2, "a switch");
	alarm(30);
	sw = argv[1];
	versions();
	registration();
	extra_buffers();
	commands();
	return 0;
}
