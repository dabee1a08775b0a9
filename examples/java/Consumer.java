import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Adds up orders: reads their events in a consumer group and applies each once.
 *
 *     java Consumer redis://HOST:PORT NAME [CLAIM-AFTER [until-idle]]
 *
 * To be run in the folder of consume.lua, which says what becomes of an event. NAME
 * tells this consumer from the others of the group; what another one has read and not
 * acknowledged for CLAIM-AFTER ms (60000) is taken over. With until-idle it ends when
 * there is nothing to read. Prints for each event its id and what became of it.
 *
 * Debian has no client of Redis for Java, so the end of this file is a small one.
 */
public class Consumer {
    static final String STREAM = "order-events";
    static final String GROUP = "totals";
    static final String TOTALS = "totals";
    static final String DEAD = "order-events:dead";

    public static void main(String[] args) throws Exception {
        URI url = new URI(args[0]);
        Consumer server = new Consumer(new Socket(url.getHost(), url.getPort()));
        String script = Files.readString(Path.of("consume.lua"));
        try {
            server.command("XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM");
        } catch (IllegalStateException error) {
            if (!error.getMessage().startsWith("BUSYGROUP")) {
                throw error;
            }
        }

        List<?> entries;
        do {
            entries = server.read(args[1], args.length > 2 ? args[2] : "60000");
            for (Object each : entries) {
                List<?> entry = (List<?>) each;
                List<Object> command = new ArrayList<>(List.of("EVAL", script, "3", STREAM, TOTALS, DEAD, GROUP, entry.get(0)));
                command.addAll((List<?>) entry.get(1));
                List<?> answer = (List<?>) server.command(command.toArray());
                System.out.println(text(answer.get(0)) + " " + text(answer.get(1)));
            }
        } while (!entries.isEmpty() || args.length < 4);
    }

    /** Returns entries that a dead consumer left, or else new ones. */
    List<?> read(String name, String claimAfter) throws IOException {
        List<?> abandoned = (List<?>) ((List<?>) command("XAUTOCLAIM", STREAM, GROUP, name, claimAfter, "0-0", "COUNT", "100")).get(1);
        if (!abandoned.isEmpty()) {
            return abandoned;
        }
        List<?> answer = (List<?>) command("XREADGROUP", "GROUP", GROUP, name, "COUNT", "100", "BLOCK", "1000", "STREAMS", STREAM, ">");
        return answer == null ? List.of() : (List<?>) ((List<?>) answer.get(0)).get(1);
    }

    private final InputStream in;
    private final OutputStream out;

    Consumer(Socket socket) throws IOException {
        in = new BufferedInputStream(socket.getInputStream());
        out = socket.getOutputStream();
    }

    /** Sends a command of strings and byte arrays; returns a byte array, a list, a number as text, or null. */
    Object command(Object... words) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        bytes.writeBytes(("*" + words.length + "\r\n").getBytes());
        for (Object word : words) {
            byte[] data = word instanceof byte[] ? (byte[]) word : word.toString().getBytes(StandardCharsets.UTF_8);
            bytes.writeBytes(("$" + data.length + "\r\n").getBytes());
            bytes.writeBytes(data);
            bytes.writeBytes("\r\n".getBytes());
        }
        out.write(bytes.toByteArray());
        return reply();
    }

    private Object reply() throws IOException {
        String line = line();
        String value = line.substring(1);
        switch (line.charAt(0)) {
            case '-':
                throw new IllegalStateException(value);
            case '$':
                if (value.equals("-1")) {
                    return null;
                }
                byte[] data = in.readNBytes(Integer.parseInt(value));
                line();
                return data;
            case '*':
                if (value.equals("-1")) {
                    return null;
                }
                List<Object> list = new ArrayList<>();
                for (int n = Integer.parseInt(value); n > 0; n--) {
                    list.add(reply());
                }
                return list;
            default:
                return value;
        }
    }

    private String line() throws IOException {
        StringBuilder line = new StringBuilder();
        for (int c; (c = in.read()) != '\n'; ) {
            if (c == -1) {
                throw new IOException("Redis closed the connection");
            }
            if (c != '\r') {
                line.append((char) c);
            }
        }
        return line.toString();
    }

    static String text(Object bytes) {
        return new String((byte[]) bytes, StandardCharsets.UTF_8);
    }
}
