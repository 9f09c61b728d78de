import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** A client library told what to do line by line (tests/interop/libraries.py). */
abstract class Driver {
    /** What the library cannot do says {@code absent}. */
    abstract String act(String[] part) throws Exception;

    public static void main(String[] arguments) throws Exception {
        Driver driver = arguments[0].equals("smbj") ? new Smbj() : new Jcifs();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                String said = driver.act(line.split("\t", -1));
                out.println(said.equals("absent") ? said : "ok\t" + said);
            } catch (Exception why) {
                StringBuilder text = new StringBuilder();
                for (Throwable cause = why; cause != null; cause = cause.getCause()) {
                    text.append(cause).append(' ');
                }
                out.println("error\t" + text.toString().replace('\n', ' '));
            }
        }
        // The libraries' threads do not keep the process.
        System.exit(0);
    }
}
