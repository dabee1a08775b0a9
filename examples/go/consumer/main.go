// Adds up orders: reads their events in a consumer group and applies each once.
//
//	consumer URL-OF-REDIS NAME [CLAIM-AFTER [until-idle]]
//
// To be run in the folder of consume.lua, which says what becomes of an event. NAME
// tells this consumer from the others of the group; what another one has read and not
// acknowledged for CLAIM-AFTER ms (60000) is taken over. With until-idle it ends when
// there is nothing to read. Prints for each event its id and what became of it.
package main

import (
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/gomodule/redigo/redis"
)

const (
	stream = "order-events"
	group  = "totals"
	totals = "totals"
	dead   = "order-events:dead"
)

func main() {
	server, err := redis.DialURL(os.Args[1])
	check(err)
	script, err := os.ReadFile("consume.lua")
	check(err)
	apply := redis.NewScript(3, string(script))
	claimAfter := "60000"
	if len(os.Args) > 3 {
		claimAfter = os.Args[3]
	}
	if _, err = server.Do("XGROUP", "CREATE", stream, group, "0", "MKSTREAM"); err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
		log.Fatal(err)
	}

	for {
		entries := read(server, os.Args[2], claimAfter)
		for _, entry := range entries {
			parts := entry.([]interface{})
			args := append([]interface{}{stream, totals, dead, group, parts[0]}, parts[1].([]interface{})...)
			answer, err := redis.Strings(apply.Do(server, args...))
			check(err)
			fmt.Println(answer[0], answer[1])
		}
		if len(os.Args) > 4 && len(entries) == 0 {
			return
		}
	}
}

// read returns entries that a dead consumer left, or else new ones.
func read(server redis.Conn, name, claimAfter string) []interface{} {
	answer, err := redis.Values(server.Do("XAUTOCLAIM", stream, group, name, claimAfter, "0-0", "COUNT", 100))
	check(err)
	if abandoned := answer[1].([]interface{}); len(abandoned) > 0 {
		return abandoned
	}
	answer, err = redis.Values(server.Do("XREADGROUP", "GROUP", group, name, "COUNT", 100, "BLOCK", 1000, "STREAMS", stream, ">"))
	if err == redis.ErrNil {
		return nil
	}
	check(err)
	return answer[0].([]interface{})[1].([]interface{})
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
