/* Frames whose VLAN tag is in the packet's metadata, as VLAN devices and hooks of the stack leave it, arrive with the tag.
 * Usage: tags_beside PORT NEAR FAR TYPE, where NEAR and FAR are a cable's ends, and PORT receives the frames of NEAR: itself, a
 * port of its switch, or `stack`. TYPE is the tag's, 8100 or 88a8. */
#include "common.h"

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define LEN 64u
#define COUNT 100u
#define TAG 0x2007u

static int
bpf(int command, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, command, attr, sizeof(*attr));
}

/* A hook where FAR's stack sends: `return bpf_skb_vlan_push(skb, kind, TAG)`, which is 0, or drops it. */
static void
push_tags(const char *ifname, uint16_t kind)
{
	struct bpf_insn program[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 2, .imm = htons(kind)},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = TAG},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_skb_vlan_push},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	union bpf_attr attr;
	int fd;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_SCHED_CLS;
	attr.expected_attach_type = 47; /* BPF_TCX_EGRESS */
	attr.insns = (uintptr_t)program;
	attr.insn_cnt = sizeof(program) / sizeof(program[0]);
	attr.license = (uintptr_t)"GPL";
	CHECK((fd = bpf(BPF_PROG_LOAD, &attr)) >= 0, "load a program");
	memset(&attr, 0, sizeof(attr));
	attr.link_create.prog_fd = (uint32_t)fd;
	attr.link_create.target_ifindex = if_nametoindex(ifname);
	attr.link_create.attach_type = 47;
	CHECK(bpf(BPF_LINK_CREATE, &attr) >= 0, "attach it");
}

static int
raw_socket(const char *ifname)
{
	struct sockaddr_ll at = { 0 };
	int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), on = 1;

	at.sll_family = AF_PACKET;
	at.sll_protocol = htons(ETH_P_ALL);
	at.sll_ifindex = (int)if_nametoindex(ifname);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "a packet socket");
	CHECK(setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof(on)) == 0, "auxiliary data");
	return fd;
}

/* Checks that the frame is number `seq`, with this tag in it. */
static void
check_tagged(const char *frame, uint32_t len, uint16_t kind, uint32_t seq)
{
	char expected[LEN], plain[LEN];
	uint16_t tag[2] = {htons(kind), htons(TAG)};

	fill(expected, LEN, seq);
	CHECK(len == LEN + 4, "length %u", len);
	CHECK(memcmp(frame + 12, tag, 4) == 0, "tag %02x%02x%02x%02x", frame[12] & 0xff, frame[13] & 0xff, frame[14] & 0xff,
		frame[15] & 0xff);
	memcpy(plain, frame, 12);
	memcpy(plain + 12, frame + 16, LEN - 12);
	CHECK(memcmp(plain, expected, LEN) == 0, "content of frame %u", seq);
}

static void
by_netmap(const char *name, int sender, uint16_t kind)
{
	struct port p = open_port(strncmp(name, "netmap:", 7) == 0 ? name + 7 : name);
	struct netmap_ring *r = NETMAP_RXRING(p.nifp, 0);
	char frame[LEN];
	uint32_t seq;

	for (seq = 0; seq < COUNT; seq++) {
		struct netmap_slot *s;

		fill(frame, LEN, seq);
		CHECK(send(sender, frame, LEN, 0) == (ssize_t)LEN, "send");
		CHECK(poll_for(p.fd, POLLIN, 5000) & POLLIN, "frame %u came", seq);
		s = &r->slot[r->head];
		check_tagged(NETMAP_BUF(r, s->buf_idx), s->len, kind, seq);
		r->head = r->cur = nm_ring_next(r, r->head);
	}
	close_port(&p);
}

/* A program only sends on the interface: its stack receives, as if the program were not there. */
static void
by_the_stack(const char *ifname, int sender, uint16_t kind)
{
	struct nmreq_register reg = { .nr_mode = NR_REG_ALL_NIC, .nr_flags = NR_TX_RINGS_ONLY };
	struct port p;
	char frame[LEN], got[2 * LEN], control[256];
	struct iovec place = {got, sizeof(got)};
	struct msghdr m = { 0 };
	struct cmsghdr *c;
	struct tpacket_auxdata beside;
	int receiver;

	p = open_port_with(ifname, reg);
	receiver = raw_socket(ifname);
	fill(frame, LEN, 7);
	CHECK(send(sender, frame, LEN, 0) == (ssize_t)LEN, "send");
	m.msg_iov = &place;
	m.msg_iovlen = 1;
	m.msg_control = control;
	m.msg_controllen = sizeof(control);
	CHECK(poll_for(receiver, POLLIN, 5000) & POLLIN, "the stack has it");
	CHECK(recvmsg(receiver, &m, 0) == (ssize_t)LEN && memcmp(got, frame, LEN) == 0, "the frame");
	c = CMSG_FIRSTHDR(&m);
	CHECK(c != NULL && c->cmsg_type == PACKET_AUXDATA, "auxiliary data");
	memcpy(&beside, CMSG_DATA(c), sizeof(beside));
	CHECK(beside.tp_status & TP_STATUS_VLAN_VALID && beside.tp_vlan_tci == TAG && beside.tp_vlan_tpid == kind, "one tag");
	close(receiver);
	close_port(&p);
}

int
main(int argc, char **argv)
{
	uint16_t kind;
	int sender;

	CHECK(argc == 5, "a port, two interfaces, and the tag's type");
	alarm(60);
	kind = (uint16_t)strtoul(argv[4], NULL, 16);
	push_tags(argv[3], kind);
	sender = raw_socket(argv[3]);
	if (strcmp(argv[1], "stack") == 0)
		by_the_stack(argv[2], sender, kind);
	else
		by_netmap(argv[1], sender, kind);
	return 0;
}
